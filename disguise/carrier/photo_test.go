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
	bands, err := os.ReadFile("testdata/progressive.jpg") // view(24, 70) by djpeg and cjpeg -progressive
	if err != nil {
		panic(err)
	}
	return []example{
		{kind, "a picture", whole, photo{}.Capacity(whole)},
		{kind, "followed by something", append(bytes.Clone(whole), "more"...), photo{}.Capacity(whole)},
		{kind, "cut", whole[:len(whole)-20], 0},
		{kind, "progressive", bands, 11},
		{kind, "progressive, cut", bands[:len(bands)-20], 0},
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
		needs(t, program, "libjpeg-turbo-progs")
	}
	source := view(120, 95)
	pixels := pipe(t, source, "djpeg")
	script := func(name, text string) string {
		at := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	apart := script("apart", "0;\n1;\n2;\n")
	bands := script("bands", "0,1,2: 0-0, 0, 0;\n0: 1-9, 0, 0;\n0: 10-63, 0, 0;\n1: 1-63, 0, 0;\n2: 1-63, 0, 0;\n")
	better := script("better", "0: 0-0, 0, 1;\n1,2: 0-0, 0, 0;\n0: 0-0, 1, 0;\n0: 1-63, 0, 3;\n0: 1-63, 3, 2;\n0: 1-20, 2, 1;\n0: 1-20, 1, 0;\n0: 21-63, 2, 1;\n0: 21-63, 1, 0;\n1: 1-63, 0, 0;\n2: 1-63, 0, 0;\n")
	first := 0
	for _, c := range []struct {
		what      string
		arguments []string
		room      bool
		same      bool // coefficients as the first one
	}{
		{"colours at half the size", nil, true, true}, {"all at full size", []string{"-sample", "1x1"}, true, false}, {"grey", []string{"-grayscale"}, true, false},
		{"other codes", []string{"-optimize", "-quality", "95"}, true, false}, {"restarts", []string{"-restart", "2B"}, true, true},
		{"restarts each line", []string{"-restart", "1"}, true, true}, {"wide", []string{"-sample", "2x1"}, true, false},
		{"each component by itself", []string{"-scans", apart, "-restart", "1"}, true, true},
		{"progressive", []string{"-progressive"}, true, true}, {"progressive, grey", []string{"-progressive", "-grayscale", "-restart", "3B"}, true, false},
		{"progressive, restarts each line", []string{"-progressive", "-restart", "1", "-sample", "2x1"}, true, false},
		{"bands in whole", []string{"-scans", bands}, true, true}, {"bands that get better", []string{"-scans", better}, true, true}, {"arithmetic", []string{"-arithmetic"}, false, false},
	} {
		object := pipe(t, pixels, "cjpeg", c.arguments...)
		n := photo{}.Capacity(object)
		if first == 0 {
			first = n
		}
		if n > 0 != c.room || c.room && n < len(object)/60 || c.same && n != first {
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
