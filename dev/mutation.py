"""Mutation of the rules: each mutant is one line of `excite.propagation` made wrong, and the tests must notice.

    python dev/mutation.py                      all mutants
    python dev/mutation.py --json found.jsonl   one line for each; those already in the file are not run again
    python dev/mutation.py --only rules         those whose file has this in its name

A mutant is run on a copy of ``src`` in a temporary folder, with the tests of propagation, those most likely to notice
first; the first test that fails kills it. The command ends with 1 where one survives. Before all, the tests must pass
without any mutant: one that fails anyhow would seem to kill everything.
"""

# ruff: noqa: E501 - one line for each mutant

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/excite/propagation")
TESTS = "tests/propagation"
MATRICES, RANDOM, UNUSUAL = "test_rules_against_matrices.py", "test_random_networks.py", "test_never_silently_wrong.py"
BOUNDED, STRUCTURE, DEFERRED = "test_bounded_activations.py", "test_structure.py", "fast/test_deferred.py"
GRADIENTS, CHAIN, WINDOWS = "test_gradients.py", "test_chain_and_walks.py", "fast/test_windows.py"


class Mutant(NamedTuple):
    """One wrong line: its file, the right text, the wrong text, and the tests that should notice first."""

    file: str
    right: str
    wrong: str
    first: str = MATRICES

    @property
    def name(self) -> str:
        """For the report and for resuming."""
        return f"{self.file}: {self.right!r} -> {self.wrong!r}"


NONE = Mutant("rules.py", "Rule(ABC)", "Rule(ABC)")  # nothing is changed
MUTANTS = (
    # The rules: signs, normalisers, baselines.
    Mutant("rules.py", "return inverse if sign > 0 else inverse.neg_()", "return inverse"),
    Mutant("rules.py", "W.back(P * self.reciprocal(W.totals(A), sign))", "W.back(P * (W.totals(A) != 0) * sign)"),
    Mutant("rules.py", "for each in (sign, -sign)]", "for each in (sign, sign)]"),
    Mutant("rules.py", "clamp(min=0) if sign > 0 else weight", "clamp(min=0) if sign < 0 else weight"),
    Mutant("rules.py", "child = child if baseline is None else child - baseline", "child = child + 0", BOUNDED),
    Mutant("rules.py", "((self.unit, direction), (self.dual, -direction))", "((self.unit, direction), (self.dual, direction))"),
    Mutant("rules.py", "for direction, probability in zip((1, -1), prob", "for direction, probability in zip((1, 1), prob"),
    Mutant("rules.py", "for sign, probability in zip((1, -1), prob", "for sign, probability in zip((1, 1), prob", RANDOM),
    Mutant("rules.py", "sizes[k] if total is None else sizes[k] / total", "sizes[k]", RANDOM),
    Mutant("rules.py", "if self.cued and sign > 0:  #", "if False:  #", STRUCTURE),
    Mutant("rules.py", "if self.mask is not None and not self.cued:", "if False:", UNUSUAL),
    Mutant("rules.py", "reduced(probability / 2, self.left)", "reduced(probability, self.left)", STRUCTURE),
    Mutant("rules.py", "direction = (response >= 0).to(response.dtype) * 2 - 1", "direction = torch.ones_like(response)"),
    Mutant("rules.py", "return direction if self.polarity is None else direction * self", "return direction if True else self", RANDOM),
    Mutant("rules.py", "return probability * (direction > 0), probability * (direction < 0)", "return probability * (direction >= 0), probability * (direction < 0)", RANDOM),
    Mutant("rules.py", "if 0 < largest < 1e-15 or 1e15 < largest < math.inf else 1.0", "if False else 1.0", "test_extremes.py"),
    # What is known of an operation: factors, baselines, gates.
    Mutant("operations.py", '* (-1 if call.name == "sub" else 1)', "* 1", STRUCTURE),
    Mutant("operations.py", "terms[1] - second * factor]", "terms[1]]", RANDOM),
    Mutant("operations.py", "response - baseline, Provenance(baseline=baseline", "response, Provenance(baseline=baseline", BOUNDED),
    Mutant("operations.py", "+ least if moved else None, gate=gate)", "+ 0 if moved else None, gate=gate)", BOUNDED),
    Mutant("operations.py", "(response != 0) | (child.detach() == 0)", "(response != 0) | True", UNUSUAL),
    Mutant("operations.py", "if ranks[0] > ranks[1] else (left, right)", "if ranks[0] < ranks[1] else (left, right)", RANDOM),
    Mutant("operations.py", "baseline * gate.detach()", "baseline", RANDOM),
    Mutant("operations.py", "else slope * weight.detach()", "else slope", BOUNDED),
    # Neurons: polarity, parts of a concatenation.
    Mutant("provenance.py", "polarity = polarity if self.polarity is None else polarity * self.polarity", "polarity = polarity + 0", STRUCTURE),
    Mutant("writes.py", "neuron is None else neuron.negative)", "neuron is None else neuron.positive)", RANDOM),
    Mutant("writes.py", "if polarity is None else polarity.expand(tensor.shape)", "if True else polarity", RANDOM),
    Mutant("provenance.py", "mark.version == version_of(tensor)", "True", "test_in_place_and_flow.py"),
    # The kernels.
    Mutant("fast/kernels.py", "rule.part(rule.weight, direction * sign, flipped", "rule.part(rule.weight, direction, flipped"),
    Mutant("fast/kernels.py", "split(child if self.baseline is None else child - self.baseline)", "split(child)", BOUNDED),
    Mutant("fast/kernels.py", "signs.append(direction * sign)", "signs.append(direction)"),
    Mutant("fast/kernels.py", "orientation = self.orientation if flipped else None", "orientation = None", RANDOM),
    Mutant("fast/kernels.py", "for pad in (each, each)]", "for pad in (each + 1, each - 1)]", WINDOWS),
    Mutant("fast/convolution.py", "*LIMITS[self.sign], out=space", "*LIMITS[-self.sign], out=space", DEFERRED),
    Mutant("fast/shortcuts.py", "size // 2, (size - 1) // 2)", "(size - 1) // 2, size // 2)", "fast/test_shortcuts.py"),
    Mutant("fast/carry.py", "_ordered_as(arrived.by, arrived.values) * arrived.by", "arrived.values", DEFERRED),
    # The passes: contrast, gradients, the chain.
    Mutant("excitation_pass.py", "dual * alpha - unit * beta", "dual * alpha + unit * beta", "test_variants.py"),
    Mutant("mwp.py", "(1.0, -1.0 if contrastive else 0.0)", "(1.0, 1.0 if contrastive else 0.0)"),
    Mutant("gradients.py", 'super().down(signal.clamp(min=0) if self.switch.variant == "guided" else signal)', "super().down(signal)", GRADIENTS),
    Mutant("gradients.py", "torch.copysign(epsilon, response)", "epsilon", GRADIENTS),
    Mutant("gradients.py", "signal if self.main is not None else signal / 2", "signal", GRADIENTS),
    Mutant("markov.py", "device=steps.device) - steps)", "device=steps.device) + steps)", CHAIN),
    Mutant("markov.py", "most < 1 - probabilities.sum()", "False", CHAIN),
)  # fmt: skip


def main() -> int:
    """Run the mutants; 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="append one line for each mutant, and skip those that are there")
    parser.add_argument("--only", default="", help="mutants with this in the name of their file")
    options = parser.parse_args()
    known = {}
    if options.json and options.json.exists():
        known = {row["mutant"]: row for row in map(json.loads, options.json.read_text().splitlines())}
    survived = 0
    for mutant in (NONE, *MUTANTS):
        if mutant is not NONE and options.only not in mutant.file:
            continue
        row = known.get(mutant.name) or {"mutant": mutant.name, "killed by": killer_of(mutant)}
        if mutant.name not in known and options.json and (mutant is not NONE or row["killed by"] is None):
            with options.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if mutant is NONE:
            if row["killed by"] is not None:
                raise SystemExit(f"the tests fail without any mutant: {row['killed by']}")
            continue
        survived += row["killed by"] is None
        print(f"{row['killed by'] or 'SURVIVED'}  {mutant.name}", flush=True)
    return int(survived > 0)


def killer_of(mutant: Mutant) -> str | None:
    """The first test that fails with the mutant; None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder) / PACKAGE / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.right) != 1:
            raise SystemExit(f"{mutant.right!r} is {text.count(mutant.right)} times in {mutant.file}: name one place")
        path.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(Path(folder) / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", "-q", "--tb=no", "-rfE"]
        for tests in (f"{TESTS}/{mutant.first}", TESTS):
            ran = subprocess.run(  # noqa: S603 - our own tests
                [*command, tests], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
            if ran.returncode == 1 and failed:
                return failed[0].removeprefix("FAILED ").partition(" - ")[0].removeprefix(f"{TESTS}/")
            if ran.returncode:
                raise SystemExit(f"{mutant.name}: the tests could not be run\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return None


if __name__ == "__main__":
    sys.exit(main())
