"""Packages of tasks that are changed as a forger would, and a forgery for each rule that one can break."""

from __future__ import annotations

import json
import shutil

import numpy as np

from perfguard.tasks.checking.rules import broken_rules
from perfguard.tasks.checking.tree import read_tree
from perfguard.tasks.packages import MANIFEST, checksums
from perfguard.tasks.sampled_answers import read_sample, write_sample
from tests.changed_values import replace

DETAIL, SUMMARY, ACCURACY = "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"


class Forgery:
    """A copy of a package that is changed as a forger would, checksums included."""

    def __init__(self, genuine, folder):
        self.root = folder / "package"
        shutil.copytree(genuine, self.root)
        self.performance = sorted(self.root.glob("closed/*/results/*/*/SingleStream/performance/run_*"))
        self.accuracy = sorted(self.root.glob("closed/*/results/*/*/SingleStream/accuracy"))

    def broken(self):
        """Codes of the rules that it breaks, once its checksums are right again."""
        self.edit(lambda manifest: manifest.update(files=checksums(self.root)))
        return {found.code for found in broken_rules(read_tree(self.root))}

    def edit(self, change):
        """Change `package.json`."""
        path = self.root / MANIFEST
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    def edit_run(self, change, mode="performance"):
        """Change what the manifest says of the first measurement of a mode."""
        self.edit(lambda manifest: change(next(run for run in manifest["runs"] if run["mode"] == mode)))

    def set_logged(self, key, value, folder=None):
        """Change a value of a detail log."""
        path = (folder or self.performance[0]) / DETAIL
        lines = []
        for line in path.read_text().splitlines():
            entry = json.loads(line.removeprefix(":::MLLOG "))
            if entry["key"] == key:
                entry["value"] = value
            lines.append(":::MLLOG " + json.dumps(entry))
        path.write_text("\n".join(lines) + "\n")

    def replace(self, name, old, new, folder=None):
        """Change the text of a log."""
        path = (folder or self.performance[0]) / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def drop_answer(self):
        """Delete one example's answer."""
        path = self.accuracy[0] / ACCURACY
        path.write_text(json.dumps(json.loads(path.read_text())[1:]))

    def change_answer(self):
        """Change one example's answer."""
        path = self.accuracy[0] / ACCURACY
        answers = json.loads(path.read_text())
        answers[0]["data"] = "00" * (len(answers[0]["data"]) // 2)
        path.write_text(json.dumps(answers))

    def drop_stamps(self, count=5):
        """Delete queries from perfguard's own time stamps."""
        path = self.performance[0] / "perfguard_stamps.npz"
        with np.load(path) as stamps:
            kept = {name: stamps[name][:-count] for name in stamps.files}
        np.savez_compressed(path, **kept)

    def scale_stamps(self):
        """Make all queries twice as fast in perfguard's own time stamps."""
        path = self.performance[0] / "perfguard_stamps.npz"
        with np.load(path) as stamps:
            faster = {name: stamps[name] // 2 for name in stamps.files}
        np.savez_compressed(path, **faster)

    def resample(self, change):
        """Change the answers that were kept of a measurement of speed."""
        path = self.performance[0] / "perfguard_answers.npz"
        write_sample(path, change(read_sample(path)))

    def write_task(self, change):
        """Change the task that comes with the package."""
        path = next(self.root.glob("closed/*/code/*.json"))
        path.write_text(change(path.read_text()))


def changed(**values):
    return lambda run: run.update(values)


def of_loaded(**values):
    return lambda run: run["loaded"].update(values)


FORGERIES = {
    "check.seeds": lambda it: it.set_logged("effective_qsl_rng_seed", 7),
    "check.stamp_count": lambda it: it.drop_stamps(),
    "check.stamps": lambda it: it.scale_stamps(),
    "check.answers": lambda it: it.drop_answer(),
    "check.answers_changed": lambda it: it.change_answer(),
    "check.answers_differ": lambda it: it.resample(lambda sample: [replace(each, data=bytes(40)) for each in sample]),
    "check.summary": lambda it: it.replace(SUMMARY, "Mean latency (ns)", "Mean latency (ns) : 1\nBefore"),
    "check.claim": lambda it: it.edit_run(lambda run: run["speed"].update(p90_s=run["speed"]["p90_s"] / 2)),
    "check.cell": lambda it: it.edit(lambda manifest: manifest["cells"][0].update(rounds=9)),
    "check.task": lambda it: it.edit(lambda manifest: manifest["plan"]["task"].update(name="digits")),
    "check.task_file": lambda it: it.write_task(lambda text: text.replace("0.98", "0.5")),
    "check.plan": lambda it: it.edit(lambda manifest: manifest["plan"]["seeds"].update(qsl=7)),
    "check.rounds": lambda it: it.edit(lambda manifest: manifest["plan"].update(rounds=4)),
    "check.model": lambda it: it.edit_run(of_loaded(model_sha256="0" * 64)),
    "check.data": lambda it: it.edit_run(of_loaded(data_sha256="0" * 64)),
    "check.code": lambda it: it.edit_run(of_loaded(code_sha256="0" * 64)),
    "check.precision": lambda it: it.edit_run(of_loaded(ran_in="bf16")),
    "check.not_fp32": lambda it: it.edit_run(of_loaded(snr_db=39.0)),
    "check.audit_config": lambda it: (it.performance[0] / "audit.config").write_text("*.*.min_query_count = 1"),
    "check.setting": lambda it: it.set_logged("effective_performance_issue_same", value=True),
    "check.too_few_queries": lambda it: it.set_logged("effective_min_query_count", 10),
    "check.too_short": lambda it: it.set_logged("effective_min_duration_ms", 1),
    "check.invalid": lambda it: it.set_logged("result_validity", "INVALID"),
    "check.early_stopping": lambda it: it.set_logged("early_stopping_met", value=False),
    "check.wrong_mode": lambda it: it.set_logged("effective_test_mode", "AccuracyOnly"),
    "check.loadgen_error": lambda it: it.replace(DETAIL, '"is_error": false', '"is_error": true'),
    "check.unreadable": lambda it: it.replace(DETAIL, ':::MLLOG {"key"', ":::MLLOG {key"),
    "check.dirty": lambda it: it.edit(lambda manifest: manifest.update(is_dirty=True)),
    "check.order": lambda it: it.edit_run(changed(began_at=1.0), mode="accuracy"),
    "check.pause": lambda it: it.edit(lambda manifest: manifest["plan"]["cooling"].update(by="time", most_s=1e9)),
    "check.quality": lambda it: it.edit_run(lambda run: run["quality"].update(value=0.5), mode="accuracy"),
    "check.file_missing": lambda it: (it.performance[0] / SUMMARY).unlink(),
    "check.mode_missing": lambda it: shutil.rmtree(it.accuracy[0]),
    "check.run_missing": lambda it: shutil.rmtree(it.performance[0]),
    "check.span": lambda it: it.edit(lambda manifest: manifest["plan"]["duration"].update(min_s=50.0)),
    "check.copied": lambda it: shutil.copyfile(*(folder / "perfguard_stamps.npz" for folder in it.performance[:2])),
    "check.overlap": lambda it: it.edit_run(changed(ended_at=1.0)),
    "check.folder": lambda it: it.edit_run(changed(round=9)),
    "check.no_result": lambda it: it.edit_run(changed(speed=None)),
    "check.system": lambda it: next(it.root.glob("closed/*/systems/*.json")).write_text("{}"),
    "check.run_unknown": lambda it: shutil.copytree(it.performance[0], it.performance[0].with_name("run_9")),
    "check.system_missing": lambda it: next(it.root.glob("closed/*/systems/*.json")).unlink(),
}
"""By the rule that is broken; a forger makes the checksums right afterwards."""
