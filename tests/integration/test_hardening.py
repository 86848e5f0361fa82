"""The built files are hardened: position independent, read-only after relocation, no executable stack, checked calls."""
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from wire import CAIRND

BUILD = Path(os.environ.get("CAIRN_BUILD", Path(CAIRND).parent))
SANITIZED = "asan" in str(BUILD) or "tsan" in str(BUILD)


def readelf(path, *flags):
    return subprocess.run(["readelf", "-W", *flags, str(path)], capture_output=True, text=True, check=True).stdout


@unittest.skipIf(SANITIZED, "sanitizers replace what is looked for; the release build is checked")
@unittest.skipUnless(shutil.which("readelf"), "readelf (binutils) is not installed")
class Hardening(unittest.TestCase):
    programs = [BUILD / "cairnd", BUILD / "cairnctl"]
    library = BUILD / "libcairn.so"

    def each(self, *more):
        paths = [*self.programs, *more]
        self.assertEqual([path for path in paths if not path.exists()], [])
        return paths

    def test_position_independent(self):
        for path in self.each(self.library):
            self.assertRegex(readelf(path, "-h"), r"Type:\s+DYN")
        for path in self.each():
            self.assertIn("PIE", readelf(path, "-d"))

    def test_relocations_are_read_only_and_bound_at_start(self):
        for path in self.each(self.library):
            self.assertIn("GNU_RELRO", readelf(path, "-l"))
            self.assertRegex(readelf(path, "-d"), r"BIND_NOW|Flags:.*NOW")

    def test_no_executable_stack_and_no_text_relocations(self):
        for path in self.each(self.library):
            self.assertRegex(readelf(path, "-l"), r"GNU_STACK\s+\S+ \S+ \S+ \S+ \S+ RW\s")
            self.assertNotIn("TEXTREL", readelf(path, "-d"))

    def test_stack_protector_and_fortified_calls(self):
        for path in self.each(self.library):
            symbols = readelf(path, "--dyn-syms")
            self.assertIn("__stack_chk_fail", symbols)
            self.assertRegex(symbols, r"__(snprintf|vsnprintf|memcpy|memset|fprintf)_chk")

    def test_flags_of_every_file(self):
        commands = (BUILD / "compile_commands.json").read_text()
        ours = re.findall(r'"command": "([^"\\]*(?:\\.[^"\\]*)*)"', commands)
        self.assertGreater(len(ours), 50)
        for command in ours:
            if "generated/" in command.rsplit(" -c ", 1)[-1]:
                continue
            for flag in ("-fstack-protector-strong", "-fstack-clash-protection", "-D_FORTIFY_SOURCE=3", "-Werror"):
                self.assertIn(flag, command)

    def test_the_library_exports_only_its_api(self):
        names = re.findall(r"(?:FUNC|OBJECT)\s+GLOBAL\s+DEFAULT\s+\d+\s+(\S+)", readelf(self.library, "--dyn-syms"))
        self.assertGreater(len(names), 10)
        self.assertEqual([name for name in names if not name.startswith("cairn_")], [])

    def test_the_library_needs_little(self):
        needed = set(re.findall(r"NEEDED.*\[(.+?)\]", readelf(self.library, "-d")))
        self.assertLessEqual({n.split(".so")[0] for n in needed}, {"libprotobuf-c", "libxxhash", "libsodium", "libc", "libm", "libpthread"})
        self.assertRegex(readelf(self.library, "-d"), r"SONAME.*\[libcairn\.so\.\d+\]")


if __name__ == "__main__":
    unittest.main()
