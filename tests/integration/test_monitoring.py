"""The dashboards and rules against a live cairnd and Debian's Prometheus."""
import json
import re
import shutil
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree
from pathlib import Path

from test_operate import free_port, wait_for
from wire import *

DEPLOY = Path(ROOT) / "deploy"
RULES = DEPLOY / "prometheus/cairn.rules.yml"


def dashboard_queries():
    for panel in json.loads((DEPLOY / "grafana/cairn.json").read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


@unittest.skipUnless(shutil.which("promtool"), "promtool (Debian's prometheus) is not installed")
class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        result = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_rules_are_valid(self):
        self.assertIn("SUCCESS", self.promtool("check", "rules", str(RULES)))

    def test_rules_fire_when_they_should(self):
        self.assertIn("SUCCESS", self.promtool("test", "rules", str(DEPLOY / "prometheus/cairn.rules.test.yml")))

    def test_every_alert_has_a_remedy_and_a_unit_test(self):
        alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
        tests = (DEPLOY / "prometheus/cairn.rules.test.yml").read_text()
        self.assertGreater(len(alerts), 8)
        self.assertEqual(len(re.findall(r"^ +remedy:", RULES.read_text(), re.M)), len(alerts))
        for alert in alerts:
            self.assertIn(alert, tests)


class Dashboard(unittest.TestCase):
    def test_the_file_is_what_its_maker_makes(self):
        made = subprocess.run([sys.executable, str(DEPLOY / "grafana/make_dashboard.py")], capture_output=True, text=True)
        self.assertEqual(made.stdout, (DEPLOY / "grafana/cairn.json").read_text())

    @unittest.skipUnless(shutil.which("prometheus"), "Debian's prometheus is not installed")
    def test_every_query_answers_from_a_live_daemon(self):
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        port, own_port = free_port(), free_port()
        daemon = Daemon(directory, metrics_address=f"127.0.0.1:{port}")
        (Path(directory) / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
            f"scrape_configs: [{{job_name: cairn, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n")
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb",
             f"--web.listen-address=127.0.0.1:{own_port}"], stderr=subprocess.PIPE, text=True)
        try:
            self.query_all(daemon, own_port)
        finally:
            prometheus.terminate()
            prometheus.communicate()
            daemon.stop()
            shutil.rmtree(directory)

    def query_all(self, daemon, port):
        def ask(expr):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
            with urllib.request.urlopen(url, timeout=30) as reply:
                return json.load(reply)["data"]["result"]

        def up():
            try:
                return [s for s in ask("up") if s["value"][1] == "1"]
            except OSError:
                return []

        wait_for("Prometheus to scrape", up)
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(4096))
            searched = Space(dtype=F32, layers=1, kv_heads=1)
            number = c.open_space(searched)
            block = block_key(searched, None, range(16))
            c.put(number, [block], b"".join(struct.pack("<f", n % 7 - 3) for n in range(searched.bytes() // 4)))
            context = c.call(OPEN_CONTEXT, message({1: number, 2: block})).get(1)
            queries = struct.pack("<f", 0.5) * searched.k_dim
            for i in range(12):  # some seconds of traffic of every sort
                keys = [key("monitoring", i, j) for j in range(4)]
                c.put(space, keys, pattern(4 * 4096, i))
                c.lookup(space, keys + [key("absent", i)])
                c.get(space, keys)
                c.get(space, [key("absent", i)])
                reply = c.call(RETRIEVE, message({1: [context], 2: [0], 3: 1, 4: 1, 5: region(0, 0, len(queries)), 7: message({1: 4})}), queries)
                self.assertEqual(reply.status, OK, reply.text)
                time.sleep(0.5)
        empty = []
        for title, expr in dashboard_queries():
            result = ask(expr.replace("$__rate_interval", "10s").replace("$instance", ".*"))
            if not result or any(v["value"][1] in ("NaN", "+Inf") and "quantile" not in expr for v in result):
                empty.append((title, expr, result))
        self.assertEqual(empty, [])
        [hits] = ask('sum(increase(cairn_lookup_blocks_total{tier!="none"}[1m])) / sum(increase(cairn_lookup_blocks_total[1m]))')
        self.assertAlmostEqual(float(hits["value"][1]), 0.8, delta=0.01)
        self.assertEqual(ask('ALERTS{alertstate="firing"}'), [])
        self.assertTrue(ask("instance:cairn_lookup_hit:ratio_rate5m"), "recording rules run")
        self.draw(port, daemon.directory)

    def draw(self, port, directory):
        """The dashboard as a picture; CAIRN_PICTURE names a file to keep it in."""
        out = os.environ.get("CAIRN_PICTURE", os.path.join(directory, "picture.svg"))
        made = subprocess.run([sys.executable, str(DEPLOY / "grafana/picture.py"), f"http://127.0.0.1:{port}", out, "--last", "20", "--step", "1"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(made.returncode, 0, made.stderr)
        picture = xml.etree.ElementTree.parse(out).getroot()
        texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        for panel in json.loads((DEPLOY / "grafana/cairn.json").read_text())["panels"]:
            self.assertIn(panel["title"], texts)
        self.assertGreater(len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))), 20)
        self.assertLess(texts.count("no data"), 3, texts)


if __name__ == "__main__":
    unittest.main()
