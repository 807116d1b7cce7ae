"""The networks against the published layers: tables written out, counts of weights from the formula of each layer.

A convolution has (kernel x inputs + 1) x outputs weights, a dense layer (inputs + 1) x outputs, a normalisation 4 for
each channel, two of them averages.
"""

import numpy as np
import pytest

from heddle_eval.attacks import make, networks

C = 100


def table(model, kinds):
    """Name of layer, shape of output, and weights of the layers of some kinds."""
    return [
        (type(layer).__name__, tuple(layer.output.shape[1:]), layer.count_params())
        for layer in model.layers
        if type(layer).__name__ in kinds
    ]


def test_df():
    model = networks.df(5000, C, seed=None)
    kinds = {"Conv1D", "MaxPooling1D", "Dense"}
    assert table(model, kinds) == [
        ("Conv1D", (5000, 32), (8 * 1 + 1) * 32),
        ("Conv1D", (5000, 32), (8 * 32 + 1) * 32),
        ("MaxPooling1D", (1250, 32), 0),
        ("Conv1D", (1250, 64), (8 * 32 + 1) * 64),
        ("Conv1D", (1250, 64), (8 * 64 + 1) * 64),
        ("MaxPooling1D", (313, 64), 0),
        ("Conv1D", (313, 128), (8 * 64 + 1) * 128),
        ("Conv1D", (313, 128), (8 * 128 + 1) * 128),
        ("MaxPooling1D", (79, 128), 0),
        ("Conv1D", (79, 256), (8 * 128 + 1) * 256),
        ("Conv1D", (79, 256), (8 * 256 + 1) * 256),
        ("MaxPooling1D", (20, 256), 0),
        ("Dense", (512,), (20 * 256 + 1) * 512),
        ("Dense", (512,), (512 + 1) * 512),
        ("Dense", (C,), (512 + 1) * C),
    ]
    norms = 4 * (2 * (32 + 64 + 128 + 256) + 512 + 512)
    assert model.count_params() == sum(row[2] for row in table(model, kinds)) + norms == 3_985_444
    # With the 95 sites of the DF data, as its authors' code counts.
    assert networks.df(5000, 95, seed=None).count_params() == 3_985_444 - 5 * 513
    acts = [layer.activation.__name__ for layer in model.layers if type(layer).__name__ == "Activation"]
    assert acts == ["elu"] * 2 + ["relu"] * 8
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.1] * 4 + [0.7, 0.5]


def test_df_laptop():
    convolutions = sum(
        (8 * i + 1) * o for i, o in ((1, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128))
    )
    # 1000 packets are pooled to 250, 63, 16 and 4.
    dense = (4 * 128 + 1) * 256 + 257 * 256 + 257 * C
    assert make("df").parameters(C) == convolutions + dense + 4 * (2 * (16 + 32 + 64 + 128) + 2 * 256)
    assert make("tik-tok").parameters(C) == make("df").parameters(C)
    assert make("tik-tok", "paper").parameters(95) == make("df", "paper").parameters(95)


def test_p1fp():
    model = networks.p1fp(5000, C, seed=None)
    assert table(model, {"Conv2D", "MaxPooling2D", "Dense"}) == [
        ("Conv2D", (1, 5000, 128), (12 * 1 + 1) * 128),
        ("MaxPooling2D", (1, 500, 128), 0),
        ("Conv2D", (1, 500, 128), (12 * 128 + 1) * 128),
        ("MaxPooling2D", (1, 50, 128), 0),
        ("Dense", (256,), (50 * 128 + 1) * 256),
        ("Dense", (C,), (256 + 1) * C),
    ]
    assert model.count_params() == 1664 + 196_736 + 1_638_656 + 257 * C
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.2]


def test_local_response_normalisation():
    x = np.random.default_rng(0).normal(size=(2, 1, 3, 20)).astype(np.float32)
    got = np.asarray(networks.LocalResponseNormalization()(x))
    for channel in (0, 7, 19):
        around = x[..., max(0, channel - 5) : channel + 6]
        np.testing.assert_allclose(
            got[..., channel], x[..., channel] / (1 + 1e-4 * (around**2).sum(-1)) ** 0.75, rtol=1e-6
        )


@pytest.mark.parametrize("metadata", [0, 12])
def test_varcnn(metadata):
    model = networks.varcnn([5000], metadata, C, seed=None)
    convolutions = [row for row in table(model, {"Conv1D"})]
    expected, inputs, length = [((2500, 64), 7 * 64)], 64, 1250
    for stage, filters in enumerate((64, 128, 256, 512)):
        length = length if stage == 0 else -(-length // 2)
        shape = (length, filters)
        expected += [(shape, 3 * inputs * filters), (shape, 3 * filters * filters), (shape, inputs * filters)]
        expected += [(shape, 3 * filters * filters)] * 2
        inputs = filters
    assert sorted(row[1:] for row in convolutions) == sorted(expected)
    dilations = sorted(
        (layer.dilation_rate[0], layer.padding) for layer in model.layers if type(layer).__name__ == "Conv1D"
    )
    assert dilations == sorted([(1, "valid")] * 5 + [(d, "causal") for d in (1, 2, 4, 8) for _ in range(4)])
    count = sum(size for _, size in expected) + 4 * (64 + 5 * (64 + 128 + 256 + 512))
    last = 512
    if metadata:
        count += (metadata + 1) * 32 + 4 * 32 + (512 + 32 + 1) * 1024 + 4 * 1024
        last = 1024
    assert model.count_params() == count + (last + 1) * C


def test_varcnn_ensemble():
    both = make("var-cnn", "paper").parameters(C)
    assert both == 2 * make("var-cnn-packets", "paper").parameters(C) == 2 * make("var-cnn-time", "paper").parameters(C)


def test_rf():
    model = networks.rf(1800, C, seed=None)
    assert table(model, {"Conv2D", "MaxPooling2D", "Conv1D", "MaxPooling1D", "Reshape", "GlobalAveragePooling1D"}) == [
        ("Conv2D", (2, 1797, 32), (18 * 1 + 1) * 32),
        ("Conv2D", (2, 1794, 32), (18 * 32 + 1) * 32),
        ("MaxPooling2D", (2, 598, 32), 0),
        ("Conv2D", (2, 595, 64), (18 * 32 + 1) * 64),
        ("Conv2D", (2, 592, 64), (18 * 64 + 1) * 64),
        ("MaxPooling2D", (1, 296, 64), 0),
        ("Reshape", (32, 592), 0),
        ("Conv1D", (592, 128), (3 * 32 + 1) * 128),
        ("Conv1D", (592, 128), (3 * 128 + 1) * 128),
        ("MaxPooling1D", (197, 128), 0),
        ("Conv1D", (197, 256), (3 * 128 + 1) * 256),
        ("Conv1D", (197, 256), (3 * 256 + 1) * 256),
        ("MaxPooling1D", (65, 256), 0),
        ("Conv1D", (65, 512), (3 * 256 + 1) * 512),
        ("Conv1D", (65, C), (3 * 512 + 1) * C),
        ("GlobalAveragePooling1D", (C,), 0),
    ]
    norms = 4 * (32 + 32 + 64 + 64 + 128 + 128 + 256 + 256 + 512 + C)
    convolutions = sum(layer.count_params() for layer in model.layers if type(layer).__name__.startswith("Conv"))
    assert model.count_params() == convolutions + norms
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.1, 0.1, 0.3, 0.3]


def test_first_weights_as_named():
    draw = networks.Draw(0)
    for fan, size in (("in", 3 * 200), ("out", 3 * 400), ("mean", 3 * 300)):
        for kind in ("uniform", "normal", "truncated"):
            weights = draw.scaled(2, fan, kind)((3, 200, 400))
            assert weights.std() == pytest.approx((2 / size) ** 0.5, rel=0.02)
    assert abs(draw.bell(0.02)((100, 100))).max() <= 0.04
    models = [networks.df(64, 4, 0.1, seed) for seed in (1, 1, 2)]
    a, b, other = ([np.asarray(v.value) for v in m.trainable_variables] for m in models)
    assert all((x == y).all() for x, y in zip(a, b, strict=True))
    assert any((x != y).any() for x, y in zip(a, other, strict=True))
