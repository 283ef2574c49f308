"""Audio classifiers of transformers: fed as their feature extractors feed them, whatever the rate of the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import resample_poly
from tests.peers.test_models import package
from typer.testing import CliRunner

from neurotest.audio import wav
from neurotest.cli.app import app
from neurotest.errors import BadInput
from neurotest.scan import read
from neurotest.target.huggingface import audio_feeding
from neurotest.target.load import load
from neurotest.target.spec import TargetSpec

COUNT, CLASSES = 18, ["low", "middle", "high"]


def wav2vec(folder: Path, *, normalise: bool = True) -> tuple[Any, Any]:
    """A small network of raw sound and its feature extractor, saved."""
    transformers = package("transformers")
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8), conv_kernel=(10, 3),
        conv_stride=(5, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
        classifier_proj_size=8, id2label=dict(enumerate(CLASSES)),
    )  # fmt: skip
    model = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalise)
    extractor.save_pretrained(folder)
    return model, extractor


def sounds() -> list[tuple[np.ndarray, int]]:
    """A tenth of a second each, every other one of 8,000 samples a second."""
    random = np.random.default_rng(0)
    out = []
    for i in range(COUNT):
        rate = 8000 if i % 2 else 16000
        time = np.arange(rate // 10) / rate
        wave = 0.4 * np.sin(2 * np.pi * random.uniform(200, 2000) * time) + random.normal(0, 0.05, len(time))
        out.append((np.rint(wave * 32768).astype(np.int16), rate))
    return out


def resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    """At 16,000 a second, in 16 bits, full scale at 1."""
    values = samples / 32768 if rate == 16000 else resample_poly(samples / 32768, 2, 1)
    return np.asarray(np.rint(values * 32768) / 32768)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """The network, files in folders of the classes that it says, and transformers' own logits by file."""
    folder = tmp_path_factory.mktemp("sound")
    model, extractor = wav2vec(folder / "net")
    values = extractor([resampled(*one) for one in sounds()], sampling_rate=16000, return_tensors="pt")["input_values"]
    with torch.no_grad():  # no class is the usual answer, and logits are about 1
        logits = model(values).logits
        model.classifier.weight /= logits.std(0)[:, None]
        model.classifier.bias.copy_((model.classifier.bias - logits.mean(0)) / logits.std(0))
        logits = model(values).logits
    model.save_pretrained(folder / "net")
    answers = {}
    for i, (samples, rate) in enumerate(sounds()):
        first, second, _ = logits[i].sort(descending=True).values.tolist()
        if first - second < 0.05:  # another processor may say the other
            continue
        name = f"{CLASSES[int(logits[i].argmax())]}/{i:02d}.wav"
        (folder / "takes" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "takes" / name).write_bytes(wav(samples[None], rate))
        answers[name] = logits[i]
    assert len({name.partition("/")[0] for name in answers}) > 1
    assert {int(name[-6:-4]) % 2 for name in answers} == {0, 1}  # both rates
    return folder, answers


@pytest.mark.models("transformers")
def test_files_of_another_rate_are_heard_as_the_feature_extractor_hears_them(
    subject: tuple[Path, dict[str, torch.Tensor]], recwarn: pytest.WarningsRecorder
) -> None:
    folder, answers = subject
    target = load(f"hf:{folder / 'net'}")
    assert target.preprocess.rate == 16000
    source = read(target, f"wav:{folder / 'takes'}")
    assert (len(source), source.shape, source.rate) == (len(answers), (1, 1600), 16000)
    assert source.names is not None
    with torch.no_grad():
        ours = target.logits(target.prepare(source.read(np.arange(len(source)))))
    theirs = torch.stack([answers[str(name)] for name in source.names])
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    again = TargetSpec.of(target).open()
    assert again.fingerprint == target.fingerprint
    assert again.preprocess == target.preprocess
    assert not [str(one.message) for one in recwarn if "samples per second" in str(one.message)]


COMMANDS: dict[str, tuple[str, ...]] = {
    "doctor": (),
    "cover": ("--criteria", "nlc", "--criteria", "nac:0.5"),
    "select": ("--method", "deepgini", "--budget", "5"),
    "fuzz": ("--forwards", "150", "--batch", "16"),
    "attack": ("--attack", "fgsm", "--eps", "0.01"),
}


@pytest.mark.models("transformers")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.filterwarnings("ignore")
def test_commands_on_a_folder_of_sound(command: str, subject: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path) -> None:
    folder, _ = subject
    out = () if command == "doctor" else ("--out", str(tmp_path / "run"), "--no-report")
    words = [command, f"hf:{folder / 'net'}", f"wav:{folder / 'takes'}", *COMMANDS[command], *out, "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    if command == "doctor":
        assert content["problems"] == 0, content["findings"]
    elif command == "cover":
        assert content["criteria"]["nlc"]["value"] > 0
    elif command == "select":
        assert content["fdr"] == 0  # folders are the network's own answers: each file was matched with its class
        assert len(content["indices"]) == 5
    else:
        assert content["outputs"] > 0
        assert len(list((tmp_path / "run").rglob("fault-*.wav"))) == content["faults"] > 0


@pytest.mark.models("transformers")
def test_a_changed_feature_extractor_is_another_target(tmp_path: Path) -> None:
    wav2vec(tmp_path)
    one = load(f"hf:{tmp_path}")
    file = tmp_path / "preprocessor_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"do_normalize": False}))
    assert load(f"hf:{tmp_path}").fingerprint != one.fingerprint
    file.write_text(json.dumps(config | {"sampling_rate": 44_100}))
    assert load(f"hf:{tmp_path}").preprocess.rate == 44_100
    file.write_text(json.dumps(config | {"feature_extractor_type": "WhisperFeatureExtractor"}))
    with pytest.raises(BadInput, match=r"features of a WhisperFeatureExtractor.*build the network with its features inside"):
        load(f"hf:{tmp_path}")


@pytest.mark.models("transformers")
@pytest.mark.parametrize("samples", [5000, 20_000])  # fewer frames than the network takes, and more
@pytest.mark.parametrize("normalise", [True, False])
def test_a_network_of_log_mel_features(samples: int, normalise: bool, tmp_path: Path) -> None:
    transformers = package("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ASTConfig(**sizes, max_length=64, num_mel_bins=32, id2label=dict(enumerate(CLASSES)))
    model = transformers.ASTForAudioClassification(config).eval()
    model.save_pretrained(tmp_path)
    extractor = transformers.ASTFeatureExtractor(max_length=64, num_mel_bins=32, do_normalize=normalise)
    extractor.save_pretrained(tmp_path)
    waves = np.random.default_rng(0).normal(0, 0.1, (3, samples)).clip(-1, 1).astype(np.float32)
    values = extractor(list(waves), sampling_rate=16000, return_tensors="pt")["input_values"]
    target = load(f"hf:{tmp_path}")
    x = target.prepare(waves[:, None])
    # float32 beside their float64: an energy is off by some 1e-6 of the loudest in its frame
    inputs, _ = audio_feeding(json.loads((tmp_path / "preprocessor_config.json").read_text()), tmp_path)
    features = inputs(x)["input_values"]
    torch.testing.assert_close(features, values.float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(target.logits(x), model(values.float()).logits, rtol=1e-3, atol=1e-3)
    assert target.preprocess.rate == 16000
    assert {layer.name for layer in target.survey((1, samples)).find("pre_activation")} <= {n for n, _ in model.named_modules()}
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"sampling_rate": 8000}))
    with pytest.raises(BadInput, match="sampling_rate=8000"):
        load(f"hf:{tmp_path}")
