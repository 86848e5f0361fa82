"""What a GGUF file says about its transformer, in the words the forward pass needs."""

import math
from dataclasses import asdict, dataclass

ARCHITECTURES = ("llama", "qwen2", "gemma3")


@dataclass(frozen=True)
class Config:
    """The shape of one model.  Dims are in elements, positions in tokens."""

    name: str
    arch: str
    layers: int
    heads: int          # query heads
    kv_heads: int       # grouped queries: head h reads KV head h // group
    head_dim: int       # of K and of V
    width: int          # of the residual stream
    context_max: int    # positions the model was trained for
    norm_epsilon: float
    rope_base: float
    rope_base_local: float  # in layers with a window
    rope_halves: bool   # True: element i turns with i + dim/2; False: with its neighbour
    window: int         # tokens that a local layer sees, itself included; 0: no local layers
    window_period: int  # every period-th layer is global
    embedding_scale: float

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def attention_scale(self) -> float:
        """What q.k is multiplied by before the softmax."""
        return 1.0 / math.sqrt(self.head_dim)

    def is_local(self, layer: int) -> bool:
        """Whether the layer sees only the last `window` tokens."""
        return self.window > 0 and (layer + 1) % self.window_period != 0

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_metadata(cls, meta: dict) -> "Config":
        """`meta` maps GGUF keys to values."""
        arch = meta.get("general.architecture")
        if arch not in ARCHITECTURES:
            raise ValueError(f"architecture {arch!r} is not one of {', '.join(ARCHITECTURES)}")

        def get(key, default=None):
            value = meta.get(f"{arch}.{key}", default)
            if value is None:
                raise ValueError(f"the GGUF file lacks {arch}.{key}")
            return value

        heads, width = int(get("attention.head_count")), int(get("embedding_length"))
        head_dim = int(get("attention.key_length", width // heads))
        if get("attention.value_length", head_dim) != head_dim:
            raise ValueError("K and V of different dims are not supported")
        if meta.get(f"{arch}.rope.scaling.type", "none") != "none":
            raise ValueError("scaled rotary embeddings are not supported")
        gemma = arch == "gemma3"
        return cls(
            name=str(meta.get("general.name", arch)), arch=arch,
            layers=int(get("block_count")), heads=heads,
            kv_heads=int(get("attention.head_count_kv", heads)), head_dim=head_dim, width=width,
            context_max=int(get("context_length")),
            norm_epsilon=float(get("attention.layer_norm_rms_epsilon")),
            rope_base=float(get("rope.freq_base", 10000.0)),
            rope_base_local=float(get("rope.freq_base_swa", 10000.0)),
            rope_halves=arch != "llama",
            window=int(get("attention.sliding_window")) if gemma else 0,
            window_period=6,
            embedding_scale=math.sqrt(width) if gemma else 1.0,
        )
