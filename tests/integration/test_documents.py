"""Man pages, the example configuration and completions: well-formed, and what the programs say."""
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from wire import CAIRND, ROOT

ROOT = Path(ROOT)
BUILD = Path(CAIRND).parent
PAGES = [*sorted((ROOT / "deploy/man").glob("*.[1-8]")), *sorted((ROOT / "client").rglob("*.[1-8]"))]
COMPLETIONS = ROOT / "deploy/completions"


def keys():
    return re.findall(r"^([a-z_]+) = ", subprocess.run([CAIRND, "--dump-config"], capture_output=True, text=True).stdout, re.M)


class Manuals(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_pages_are_well_formed(self):
        self.assertIn(ROOT / "deploy/man/cairnd.8", PAGES)
        for page in PAGES:
            with self.subTest(page=page.name):
                result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True)
                self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_references_lead_somewhere(self):
        there = {(page.stem, page.suffix[1:]) for page in PAGES}
        for page in PAGES:
            for name, section in re.findall(r"^\.Xr (\S+) (\d)", page.read_text(), re.M):
                if name.startswith("cairn"):
                    self.assertIn((name, section), there, f"{page.name} refers to {name}({section})")

    def test_generated_pages_are_what_the_table_says(self):
        result = subprocess.run([ROOT / "deploy/man/generate", "--check", CAIRND], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_key_is_in_the_manual(self):
        page = (ROOT / "deploy/man/cairn.conf.5").read_text()
        self.assertGreater(len(keys()), 20)
        for key in keys():
            self.assertIn(f".It Cm {key} ", page)


class Example(unittest.TestCase):
    def test_it_is_accepted_and_its_defaults_are_the_defaults(self):
        text = (ROOT / "deploy/cairn.conf.example").read_text()
        scratch = BUILD / "example.conf"
        scratch.write_text(re.sub(r"^#([a-z_]+ =)", r"\1", text, flags=re.M))
        try:
            said = subprocess.run([CAIRND, f"--config={scratch}", "--dump-config"], capture_output=True, text=True)
        finally:
            scratch.unlink()
        self.assertEqual(said.returncode, 0, said.stderr)
        plain = subprocess.run([CAIRND, "--dump-config"], capture_output=True, text=True).stdout

        def value(line):
            return line.split(" ; ")[0].rstrip()

        for one, other in zip(said.stdout.splitlines(), plain.splitlines(), strict=True):
            if one.startswith(("socket", "data_dir")):
                continue  # these depend on who runs it
            self.assertEqual(value(one), value(other))
        self.assertEqual(said.stdout.count("from file"), len(keys()))


class Completions(unittest.TestCase):
    environment = {"PATH": f"{BUILD}:/usr/bin:/bin", "HOME": "/nonexistent", "TERM": "dumb"}

    def run_in(self, *command):
        result = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.split()

    def bash(self, line):
        words = line.split(" ")
        return self.run_in("bash", "-c", f"""
            source {COMPLETIONS}/cairnctl.bash
            COMP_WORDS=({' '.join(repr(w) for w in words)}) COMP_CWORD={len(words) - 1}
            _{words[0]}; printf '%s\\n' "${{COMPREPLY[@]}}" """)

    def test_bash(self):
        self.assertEqual(self.bash("cairnctl ping"), ["ping"])
        self.assertIn("stats", self.bash("cairnctl --json s"))
        self.assertIn("--timeout", self.bash("cairnctl --t"))
        self.assertEqual(self.bash("cairnctl ping "), [])
        self.assertIn("--ram_bytes", self.bash("cairnd --ram"))
        self.assertEqual(self.bash("cairnd --log_level w"), ["warning"])

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        def fish(line):
            out = subprocess.run(["fish", "--private", "-c", f"source {COMPLETIONS}/cairnctl.fish; complete -C '{line}'"],
                                 capture_output=True, text=True, env=dict(self.environment, HOME=str(BUILD)))
            self.assertEqual(out.returncode, 0, out.stderr)
            return [one.split("\t")[0] for one in out.stdout.splitlines()]

        self.assertEqual(fish("cairnctl ping"), ["ping"])
        self.assertIn("--timeout", fish("cairnctl --ti"))
        self.assertIn("--ram_bytes", fish("cairnd --ram"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_parses(self):
        self.run_in("zsh", "-n", str(COMPLETIONS / "_cairnctl"))

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_shell_scripts_are_clean(self):
        scripts = [path for path in [*(ROOT / "deploy").rglob("*"), ROOT / "tests/run", ROOT / "tests/tidy.sh", ROOT / "tests/fuzz/run"]
                   if path.is_file() and path.read_bytes()[:30].startswith((b"#!/usr/bin/env bash", b"#!/bin/sh", b"#!/bin/bash"))]
        self.assertGreater(len(scripts), 4)
        subprocess.run(["shellcheck", "-S", "warning", "-e", "SC2164", "-s", "bash", *scripts, COMPLETIONS / "cairnctl.bash"], check=True)


if __name__ == "__main__":
    unittest.main()
