package carrier

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// view is a picture with waves of several lengths.
func view(size, quality int) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			wave := func(at float64) byte { return byte(128 + 60*math.Sin(at)) }
			m.SetNRGBA(x, y, color.NRGBA{wave(float64(x) / 2.5), wave(float64(x+y) / 4), wave(float64(x*y) / 600), 255})
		}
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, &jpeg.Options{Quality: quality}); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func photos() []example {
	const kind = "image/jpeg"
	whole := view(24, 70)
	return []example{
		{kind, "a picture", whole, photo{}.Capacity(whole)},
		{kind, "followed by something", append(bytes.Clone(whole), "more"...), photo{}.Capacity(whole)},
		{kind, "cut", whole[:len(whole)-20], 0},
		{kind, "two frames", bytes.Replace(whole, []byte{0xff, 0xc4}, append(bytes.Clone(frameOf(whole)), 0xff, 0xc4), 1), 0},
		{kind, "no JPEG", []byte("GIF89a"), 0},
	}
}

func frameOf(file []byte) []byte {
	at := bytes.Index(file, []byte{0xff, 0xc0})
	return file[at : at+2+int(file[at+3])]
}

// sameView compares two pictures: they differ by little noise.
func sameView(t *testing.T, a, b []byte) {
	t.Helper()
	before, errA := jpeg.Decode(bytes.NewReader(a))
	now, errB := jpeg.Decode(bytes.NewReader(b))
	if errA != nil || errB != nil || before.Bounds() != now.Bounds() {
		t.Fatal(errA, errB)
	}
	squares, n := 0., 0.
	for y := range before.Bounds().Dy() {
		for x := range before.Bounds().Dx() {
			d := float64(color.GrayModel.Convert(before.At(x, y)).(color.Gray).Y) - float64(color.GrayModel.Convert(now.At(x, y)).(color.Gray).Y)
			squares, n = squares+d*d, n+1
		}
	}
	if squares == 0 || squares/n > 64 {
		t.Errorf("the mean square of the difference is %.1f", squares/n)
	}
}

// Another encoder writes pictures of all its kinds. Its decoder has no complaint about them, neither before nor after, and shows the same but
// for noise.
func TestPhotosOfLibjpeg(t *testing.T) {
	for _, program := range []string{"cjpeg", "djpeg"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("typed skip: no", program+": apt-get install libjpeg-turbo-progs")
		}
	}
	source := view(120, 95)
	pixels := pipe(t, source, "djpeg")
	apart := filepath.Join(t.TempDir(), "scans")
	if err := os.WriteFile(apart, []byte("0;\n1;\n2;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		arguments []string
		room      bool
	}{
		{"colours at half the size", nil, true}, {"all at full size", []string{"-sample", "1x1"}, true}, {"grey", []string{"-grayscale"}, true},
		{"other codes", []string{"-optimize", "-quality", "95"}, true}, {"restarts", []string{"-restart", "2B"}, true},
		{"restarts each line", []string{"-restart", "1"}, true}, {"wide", []string{"-sample", "2x1"}, true},
		{"each component by itself", []string{"-scans", apart, "-restart", "1"}, true},
		{"progressive", []string{"-progressive"}, false}, {"arithmetic", []string{"-arithmetic"}, false},
	} {
		object := pipe(t, pixels, "cjpeg", c.arguments...)
		n := photo{}.Capacity(object)
		if n > 0 != c.room || c.room && n < len(object)/60 {
			t.Errorf("%s: %d of %d bytes", c.what, n, len(object))
		}
		payload := random(n)
		changed, err := photo{}.Embed(object, payload)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (photo{}).Extract(object, changed); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%s: %v", c.what, err)
		}
		before, now := pipe(t, object, "djpeg"), pipe(t, changed, "djpeg")
		if len(now) != len(before) {
			t.Fatalf("%s: %d bytes of pixels, and %d before", c.what, len(now), len(before))
		}
		squares := 0.
		for i := range now {
			d := float64(now[i]) - float64(before[i])
			squares += d * d
		}
		if squares /= float64(len(now)); squares > 64 || squares > 0 != (n > 0) {
			t.Errorf("%s: the mean square of the difference is %.1f", c.what, squares)
		}
	}
}

// pipe runs a program on its input, and expects that it has nothing to complain about.
func pipe(t *testing.T, in []byte, name string, arguments ...string) []byte {
	t.Helper()
	var out, complaints bytes.Buffer
	c := exec.Command(name, arguments...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(in), &out, &complaints
	if err := c.Run(); err != nil || complaints.Len() > 0 {
		t.Fatalf("%s %v: %v: %s", name, arguments, err, &complaints)
	}
	return out.Bytes()
}
