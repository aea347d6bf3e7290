# SPDX-License-Identifier: Apache-2.0
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.readers.preprocess import parse_preprocess
from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec

NCHW = TensorSpec("image", "float32", ("N", 3, 24, 32))
NHWC = TensorSpec("image", "float32", ("N", 24, 32, 3))
GRAY = TensorSpec("image", "float32", ("N", 1, 24, 32))
BYTES = TensorSpec("image", "uint8", ("N", 24, 32, 3))
FREE = TensorSpec("image", "float32", ("N", 3, "H", "W"))


def picture(rng, height: int = 24, width: int = 32) -> np.ndarray:
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, rng) -> tuple[Path, np.ndarray]:
    """Four PNG files of a class number each, and their pixels."""
    pixels = np.stack([picture(rng) for _ in range(4)])
    (tmp_path / "pictures" / "sub").mkdir(parents=True)
    for name, image in zip(["0_a", "1_b", "7_c", "sub/5_d"], pixels, strict=True):
        Image.fromarray(image).save(tmp_path / "pictures" / f"{name}.png")
    return tmp_path / "pictures", pixels


def test_a_spec_is_scale_then_mean_then_std(rng):
    image = picture(rng)
    spec = parse_preprocess("scale=1, mean=127.5;127.5;127.5, std=128", NCHW)
    expected = ((image.astype(np.float32) - 127.5) / 128).transpose(2, 0, 1)
    np.testing.assert_array_equal(spec(image), expected)
    assert spec(image).dtype == np.float32


def test_the_defaults_come_from_the_input(rng):
    image = picture(rng)
    np.testing.assert_allclose(parse_preprocess("", NHWC)(image), image / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(parse_preprocess("", BYTES)(image), image)
    assert parse_preprocess("", GRAY)(image).shape == (1, 24, 32)
    assert parse_preprocess("", NCHW)(picture(rng, 60, 50)).shape == (3, 24, 32)
    assert parse_preprocess("resize=40", NCHW)(picture(rng, 60, 50)).shape == (3, 24, 32)
    assert parse_preprocess("resize=40", FREE)(picture(rng, 60, 50)).shape == (3, 48, 40)
    assert parse_preprocess("crop=20x10", FREE)(picture(rng)).shape == (3, 20, 10)


def test_imagenet_stands_for_both_statistics(rng):
    image = picture(rng)
    named = parse_preprocess("mean=imagenet", NCHW)(image)
    written = parse_preprocess("mean=0.485;0.456;0.406,std=0.229;0.224;0.225", NCHW)(image)
    np.testing.assert_array_equal(named, written)
    assert abs(named.mean()) < 0.5


def test_the_crop_is_the_middle(rng):
    image = picture(rng, 10, 12)
    spec = parse_preprocess("crop=4x6,scale=1", FREE)
    np.testing.assert_array_equal(spec(image), image[3:7, 3:9].transpose(2, 0, 1))


def test_order_bgr_turns_the_channels(rng):
    image = picture(rng)
    rgb, bgr = (parse_preprocess(f"order={order}", NCHW)(image) for order in ("rgb", "bgr"))
    np.testing.assert_array_equal(bgr, rgb[::-1])


def test_resizing_is_pillows_own(rng):
    image = picture(rng, 50, 70)
    expected = np.asarray(Image.fromarray(image).resize((32, 24), Image.Resampling.BICUBIC), np.float32)
    got = parse_preprocess("resize=24x32,interpolation=bicubic,scale=1,layout=nhwc", NHWC)(image)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("resise=256", "cannot read 'resise=256'", "'resize=...'"),
        ("resize", "cannot read 'resize'", "'resize=...'"),
        ("resize=", "cannot read 'resize='", "'resize=...'"),
        ("resize=-4", "resize=-4", None),
        ("resize=1x2x3", "resize=1x2x3", None),
        ("crop=99999999", "crop=99999999", None),
        ("order=rbg", "unknown order 'rbg'", "'order=rgb'"),
        ("interpolation=bilinar", "unknown interpolation", "'interpolation=bilinear'"),
        ("mean=1;2", "mean=1;2", None),
        ("mean=a", "mean=a", None),
        ("std=0", "divide by std=0", None),
        ("std=nan", "std=nan", None),
        ("scale=1/0", "scale=1/0", None),
        ("scale=1,scale=2", "'scale' twice", None),
        ("order=gray", "order=gray", None),
        ("mean=127.5,std=127.5", "mean and std apply to", "'scale=1' in it"),
        ("layout=hwcn", "unknown layout", "'layout=nhwc'"),
    ],
)
def test_a_wrong_spec_is_an_error_with_the_nearest(text, message, hint):
    with pytest.raises(UsageError, match=message) as error:
        parse_preprocess(text, NCHW)
    assert error.value.hint == hint


@pytest.mark.parametrize("shape", [("N", 10), None, ("N", 4, 24, 32)])
def test_an_input_that_takes_no_pictures_is_an_error(shape):
    with pytest.raises(UsageError, match="cannot feed pictures"):
        parse_preprocess("", TensorSpec("x", "float32", shape))


def test_a_picture_smaller_than_the_crop_is_an_error(rng):
    with pytest.raises(DataError, match="cannot crop") as error:
        parse_preprocess("crop=64", FREE)(picture(rng))
    assert "resize" in error.value.hint


def test_a_folder_and_a_zip_give_the_same_samples(folder, tmp_path):
    path, pixels = folder
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        for name in ("0_a.png", "1_b.png", "7_c.png", "sub/5_d.png"):
            archive.write(path / name, name)
        archive.writestr("__MACOSX/._0_a.png", b"junk")
    for source in (path, tmp_path / "p.zip"):
        dataset = open_dataset(source, [BYTES], preprocess="", labels="filename")
        (batch,) = dataset.batches(8)
        np.testing.assert_array_equal(batch.inputs["image"], pixels)
        np.testing.assert_array_equal(batch.labels["labels"], [0, 1, 7, 5])
        assert len(dataset) == 4


@pytest.mark.parametrize(
    "text",
    ["0_a.png,3\n1_b.png,1\n7_c.png,4\n5_d.png,1\n",
     "class_index,name,file\n3,x,0_a.png\n1,x,1_b.png\n4,x,7_c.png\n1,x,sub/5_d.png\n"],
)  # fmt: skip
def test_labels_come_from_a_table(folder, tmp_path, text):
    (tmp_path / "labels.csv").write_text(text)
    dataset = open_dataset(folder[0], [BYTES], preprocess="", labels=tmp_path / "labels.csv")
    assert [int(b.labels["labels"][0]) for b in dataset.batches(1)] == [3, 1, 4, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("0_a.png,3\n", "no label for '1_b.png'"),
        ("0_a.png,cat\n", "line 1"),
        ("0_a.png\n", "line 1"),
    ],
)
def test_a_wrong_table_of_labels_is_an_error(folder, tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        open_dataset(folder[0], [BYTES], preprocess="", labels=tmp_path / "labels.csv")


def test_a_name_without_a_number_gives_no_label(folder, rng):
    Image.fromarray(picture(rng)).save(folder[0] / "cat.png")
    with pytest.raises(DataError, match=r"the name 'cat\.png'"):
        open_dataset(folder[0], [BYTES], preprocess="", labels="filename")


def test_labels_come_from_the_folders_of_classes(rng, tmp_path):
    for name in ("dog/2.png", "cat/1.png", "dog/old/3.png", "emu/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(rng)).save(tmp_path / name)
    dataset = open_dataset(tmp_path, [BYTES], preprocess="", labels="folder")
    assert [int(b.labels["labels"][0]) for b in dataset.batches(1)] == [0, 1, 1, 2]
    Image.fromarray(picture(rng)).save(tmp_path / "lone.png")
    with pytest.raises(DataError, match=r"the folder of 'lone\.png': it is in none"):
        open_dataset(tmp_path, [BYTES], preprocess="", labels="folder")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("imagenet", "--preprocess 'resize=256,crop=224,mean=imagenet'"),
        ("crop=24;mean=0.5;0.4;0.3;std=0.2", "--preprocess 'crop=24,mean=0.5;0.4;0.3,std=0.2'"),
        ("men=0.5", "'mean=...'"),
    ],
)
def test_a_spec_that_cannot_be_read_ends_in_one_that_can(text, hint):
    with pytest.raises(UsageError) as error:
        parse_preprocess(text, NCHW)
    assert error.value.hint == hint


def test_pictures_need_a_preprocess(folder):
    with pytest.raises(UsageError, match="cannot turn the pictures") as error:
        open_dataset(folder[0], [NCHW])
    assert "--preprocess" in error.value.hint


def test_a_function_can_do_the_preprocessing(folder, tmp_path, monkeypatch):
    path, pixels = folder
    (tmp_path / "my_pictures_test_module.py").write_text(
        "def half(image):\n    return (image / 2).astype('float32').transpose(2, 0, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    for function in ("my_pictures_test_module:half", lambda i: (i / 2).astype("float32").transpose(2, 0, 1)):
        (batch,) = open_dataset(path, [NCHW], preprocess=function).batches(4)
        np.testing.assert_array_equal(batch.inputs["image"], (pixels / 2).transpose(0, 3, 1, 2))
    for wrong in ("my_pictures_test_module:none", "no_such_module_here:half"):
        with pytest.raises(UsageError, match=wrong):
            open_dataset(path, [NCHW], preprocess=wrong)


def test_a_function_that_fails_is_named_with_its_picture(folder, tmp_path, monkeypatch):
    (tmp_path / "my_failing_images.py").write_text("def prepare(image):\n    return image['pixels']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    with pytest.raises(DataError, match="cannot preprocess '0_a.png'") as error:
        list(open_dataset(folder[0], [NCHW], preprocess="my_failing_images:prepare").samples())
    assert error.value.got.endswith("(line 2 of my_failing_images.py)")
    assert "uint8 [24, 32, 3]" in error.value.expected


def test_boxes_in_json_are_no_table_of_labels(folder, tmp_path):
    (tmp_path / "annotations.json").write_text('{"images": []}')
    with pytest.raises(DataError, match="no table of file and number") as error:
        open_dataset(folder[0], [BYTES], preprocess="", labels=tmp_path / "annotations.json")
    assert "--metric module:function" in error.value.hint


def test_a_long_line_of_a_table_is_not_shown_whole(folder, tmp_path):
    (tmp_path / "labels.csv").write_text("0_a.png," + "x" * 1000)
    with pytest.raises(DataError, match="line 1") as error:
        open_dataset(folder[0], [BYTES], preprocess="", labels=tmp_path / "labels.csv")
    assert len(error.value.got) == 80


def test_arrays_of_pictures_can_be_preprocessed(rng, tmp_path):
    pixels = np.stack([picture(rng, 48, 64) for _ in range(3)])
    np.savez(tmp_path / "d.npz", image=pixels, labels=np.arange(3))
    for source in ({"image": pixels}, tmp_path / "d.npz"):
        (batch,) = open_dataset(source, [NCHW], preprocess="").batches(4)
        assert batch.inputs["image"].shape == (3, 3, 24, 32)
    with pytest.raises(DataError, match="cannot preprocess"):
        next(open_dataset({"image": pixels / 2}, [NCHW], preprocess="").batches(1))


def test_gray_and_palette_and_turned_pictures_become_rgb(tmp_path, rng):
    image = Image.fromarray(picture(rng))
    image.convert("L").save(tmp_path / "a.png")
    image.convert("P").save(tmp_path / "b.png")
    image.convert("RGBA").save(tmp_path / "c.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees
    Image.fromarray(picture(rng, 32, 24)).save(tmp_path / "d.jpg", exif=exif)
    (batch,) = open_dataset(tmp_path, [NCHW], preprocess="").batches(8)
    assert batch.inputs["image"].shape == (4, 3, 24, 32)
    np.testing.assert_array_equal(batch.inputs["image"][0, 0], batch.inputs["image"][0, 1])


def test_a_damaged_picture_is_named(folder):
    path, _ = folder
    data = (path / "1_b.png").read_bytes()
    for damage in (b"", b"junk", data[: len(data) // 2]):
        (path / "1_b.png").write_bytes(damage)
        with pytest.raises(DataError, match=r"'1_b\.png': it is damaged"):
            list(open_dataset(path, [BYTES], preprocess="").batches(4))


def test_a_picture_of_too_many_pixels_is_an_error(tmp_path):
    # A header for 20,000 x 20,000 pixels and little after it.
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    (tmp_path / "bomb.png").write_bytes(file.getvalue())
    with pytest.raises(DataError, match=r"'bomb\.png': it is too large"):
        list(open_dataset(tmp_path, [BYTES], preprocess="").batches(1))


def test_pictures_and_arrays_in_one_folder_are_an_error(folder):
    np.save(folder[0] / "x.npy", np.zeros(3))
    with pytest.raises(DataError, match="both pictures and arrays"):
        open_dataset(folder[0], [BYTES], preprocess="")


def test_pictures_for_two_inputs_are_an_error(folder):
    with pytest.raises(DataError, match="which input gets pictures"):
        open_dataset(folder[0], [BYTES, X], preprocess="")


X = TensorSpec("x", "float32", ("N", 3))


def test_real_pictures_are_read(shared_data):
    path = shared_data("images/cifar10_calibration.zip")
    spec = TensorSpec("image", "float32", ("N", 3, 32, 32))
    dataset = open_dataset(path, [spec], preprocess="mean=imagenet", labels="filename")
    batch = next(dataset.batches(64))
    assert batch.inputs["image"].shape == (64, 3, 32, 32)
    assert set(batch.labels["labels"]) <= set(range(10))
    assert len(dataset) == 1000
