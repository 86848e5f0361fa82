"""Ask before you load: what the daemon has measured of its disk against what prefill computes."""
import cairn
import numpy as np

from wire import *


class BreakEven(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(ram_bytes="16MiB", nvme_bytes="256MiB", slab_bytes="16MiB")
        self.addCleanup(self.daemon.stop)

    def test_unknown_until_enough_was_read_then_measured(self):
        with cairn.Client(self.daemon.socket) as client:
            first = client.break_even(131072, 4000)
            self.assertEqual((first.disk_bytes_s, first.disk_tokens_s, first.load_from_disk), (0, 0, True))
            self.assertGreater(first.ram_bytes_s, 1e8)
            with self.daemon.connect() as c:
                space = c.open_space(Space.opaque(1 << 20))
                keys = [key("break even", i) for i in range(64)]
                for i, k in enumerate(keys):
                    self.assertEqual(c.put(space, [k], pattern(1 << 20, i), fields={2: 1}).statuses(), [OK])
                for k in keys:  # most of them are on NVMe alone
                    self.assertEqual(c.get(space, [k]).statuses(), [OK])
                got = c.stats()
            self.assertGreater(got["cairn_nvme_read_bytes_total"], 32 << 20)
            rate = got["cairn_nvme_read_bytes_total"] / got["cairn_nvme_read_busy_seconds_total"]
            known = client.break_even(1000, 1)
            self.assertAlmostEqual(known.disk_bytes_s, rate, delta=0.01 * rate)
            self.assertAlmostEqual(known.disk_tokens_s, rate / 1000, delta=0.01 * rate / 1000)
            self.assertEqual((known.load_from_disk, known.load_from_ram), (True, True))
            self.assertEqual(client.break_even(1e12, 1e6)[4:], (False, False))
            between = (known.ram_bytes_s + known.disk_bytes_s) / 2
            if known.ram_bytes_s > known.disk_bytes_s:  # load from RAM, recompute what the disk has
                self.assertEqual(client.break_even(1, between)[4:], (False, True))

    def test_what_makes_no_sense_is_refused(self):
        with cairn.Client(self.daemon.socket) as client:
            for bytes_per_token, rate in ((0, 1), (1, 0), (-1, 1), (float("nan"), 1), (1, float("inf"))):
                with self.assertRaisesRegex(cairn.Error, "above zero"):
                    client.break_even(bytes_per_token, rate)


if __name__ == "__main__":
    unittest.main()
