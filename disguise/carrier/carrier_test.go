package carrier

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"heddle/lab/peer"
)

// seeded is the same in each run: one in some dozens of short random objects does not look random by chance.
var seeded *rand.ChaCha8

func init() { rewind() }

// rewind lets the objects of a test be the same, whichever tests were before it.
func rewind() { seeded = rand.NewChaCha8([32]byte{1}) }

func random(n int) []byte {
	b := make([]byte, n)
	seeded.Read(b) //nolint:errcheck // it never fails
	return b
}

// opaque64 is a token of n bytes in standard base64, with a character that only it has.
func opaque64(n int) string { return usual("+/", n, base64.StdEncoding) }

// url64 is the same in base64url.
func url64(n int) string { return usual("-_", n, base64.RawURLEncoding) }

// usual is a token that does not look like a name by chance, as one of a hundred short ones does.
func usual(begin string, n int, code *base64.Encoding) string {
	for {
		if text := begin + code.EncodeToString(random(n))[2:]; mixed([]byte(text[:len(text)/4*4])) {
			return text
		}
	}
}

// disc is a picture whose ground is transparent: the half of its pixels.
func disc(size int) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size / 2 {
			m.SetNRGBA(x, y, color.NRGBA{byte(x * y), byte(x), byte(y), byte(1 + x%255)})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func mp4box(kind string, body ...[]byte) []byte {
	all := bytes.Join(body, nil)
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(all)+8)), kind...), all...)
}

func words32(v ...uint32) (out []byte) {
	for _, x := range v {
		out = binary.BigEndian.AppendUint32(out, x)
	}
	return out
}

// segment is a fragment with two samples: 10 clear and 90 encrypted bytes, and 5 clear, 15 encrypted, 10 clear and 20 encrypted ones.
func segment() []byte {
	senc := append(words32(2, 2), random(8)...)
	senc = append(senc, 0, 1, 0, 10, 0, 0, 0, 90)
	senc = append(append(senc, random(8)...), 0, 2, 0, 5, 0, 0, 0, 15, 0, 10, 0, 0, 0, 20)
	moof := func(start uint32) []byte {
		return mp4box("moof", mp4box("mfhd", words32(0, 1)), mp4box("traf", mp4box("tfhd", words32(0x20000, 1)),
			mp4box("trun", words32(0x201, 2, start, 100, 50)), mp4box("senc", senc)))
	}
	start := uint32(len(moof(0)) + 8)
	return append(moof(start), mp4box("mdat", random(150))...)
}

type example struct {
	kind, what string
	object     []byte
	capacity   int
}

func examples() []example {
	rewind()
	token, icon := opaque64(300), base64.StdEncoding.EncodeToString(disc(8))
	state := fmt.Sprintf(`{"a":[{"cursor":%q,"n":1.0}],"id":"%x","x":{"k":"v"}}`, token, random(16))
	return slices.Concat([]example{
		{"application/json", "tokens", []byte(state), 300 + 16},
		{"application/json", "names are kept", []byte(fmt.Sprintf(`{%q:"v",%q:[1]}`, opaque64(300), opaque64(30))), 0},
		{"application/json", "a name after a list and an object", []byte(fmt.Sprintf(`{"a":[[],{}],%q:{},"b":%q}`, opaque64(30), opaque64(30))), 30},
		{"application/json", "escapes", []byte(fmt.Sprintf(`["\u0041%s"]`, opaque64(300))), 0},
		{"application/json", "text in base64", []byte(fmt.Sprintf(`[%q]`, base64.StdEncoding.EncodeToString([]byte("This is text, and no noise, is it? ~~~???>>>")))), 0},
		{"application/json", "a counter", []byte(`["0000000000000000000a","11111111111111111111"]`), 0},
		{"application/json", "twice", []byte(fmt.Sprintf(`{"a":%[1]q,"b":%[1]q}`, token)), 0},
		{"application/json", "elsewhere in a URL", []byte(fmt.Sprintf(`{"a":"%[1]s","b":"/x?t=%[1]s&y"}`, hex.EncodeToString(random(16)))), 0},
		{"application/json", "damaged", []byte(state[:len(state)-1]), 0},
		{"application/json", "the rest of a group stays", []byte(`["+/AxcmtqVoe0Kvt9mGZuWcRp3QIxz"]`), 21},
		{"text/html", "a hidden field", []byte(`<!doctype html><p>a &amp; b<form><input type="hidden" value="` + token + `"><input value="` + opaque64(30) + `"></form>`), 300},
		{"text/html", "a token against forgery", []byte(`<meta name="csrf-token" content="` + token + `"><meta name="verify" content="` + opaque64(30) + `">`), 300},
		{"text/html", "state", []byte(`<h1>x</h1><script type="application/json">` + state + `</script><script>var a="` + opaque64(30) + `"</script>`), 316},
		{"text/html", "a picture", []byte(`<img src="data:image/png;base64,` + icon + `" alt=x>`), 96},
		{"text/css", "two pictures", []byte("a{background:url(data:image/png;base64," + icon + ")}\nb{background:url(data:image/png;base64," + icon + ")}"), 192},
		{"text/javascript", "a picture", []byte(`const i="data:image/png;base64,` + icon + `";`), 96},
		{"text/javascript", "a broken picture", []byte(`const i="data:image/png;base64,AAAA",j=1;`), 0},
		{"application/x-www-form-urlencoded", "a token, and what is none", []byte("a=" + url64(30) + "&b=hello+world&id=1234567890123456&c=" + url64(12)), 30},
		{"application/x-www-form-urlencoded", "a target", []byte("/media/" + hex.EncodeToString(append([]byte{0xab}, random(15)...)) + "/7.m4s?sig=" + url64(64) + "&v=%2B"), 16 + 63},
		{"application/x-www-form-urlencoded", "standard base64 holds delimiters", []byte("t=" + opaque64(300)), 0},
		{"application/x-www-form-urlencoded", "twice", []byte("a=aa0011223344556677&b=aa0011223344556677"), 0},
		{"image/png", "half transparent", disc(20), 600},
		{"image/png", "not a PNG", []byte("GIF89a"), 0},
		{"video/mp4", "encrypted", segment(), 8 + 125},
		{"video/mp4", "clear", bytes.Replace(segment(), []byte("senc"), []byte("free"), 1), 0},
		{"video/mp4", "samples outside", bytes.Replace(segment(), words32(0x201, 2), words32(0x200, 2), 1), 0},
	}, scripts(), photos(), documents(), films(), fonts())
}

func TestRoundTrip(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.kind+"/"+e.what, func(t *testing.T) {
			c := For(e.kind)
			if got := c.Capacity(e.object); got != e.capacity {
				t.Fatalf("capacity %d, want %d", got, e.capacity)
			}
			payload := random(e.capacity)
			changed, err := c.Embed(e.object, payload)
			if err != nil {
				t.Fatal(err)
			}
			if e.capacity > 0 == bytes.Equal(changed, e.object) {
				t.Error("nothing changed, or what hides nothing did")
			}
			got, err := c.Extract(e.object, changed)
			if err != nil || !bytes.Equal(got, payload) {
				t.Fatalf("%v: %x, want %x", err, got, payload)
			}
			if _, err := c.Embed(e.object, append(payload, 0)); err == nil {
				t.Error("it took a byte too many")
			}
			if e.capacity > 0 {
				if _, err := c.Embed(e.object, payload[1:]); err == nil {
					t.Error("it took a byte too few")
				}
			}
			hostile(t, c, e, changed, payload)
			if e.capacity > 0 {
				judge(t, e, changed)
			}
		})
	}
}

// hostile changes each byte, and cuts the object: either is noticed, or shows in the payload.
func hostile(t *testing.T, c Carrier, e example, changed, payload []byte) {
	t.Helper()
	step := 1
	if bytes.Contains(e.object, []byte("/Encrypt")) { // the check of an empty password takes milliseconds
		step = 7
	}
	for i := 0; i < len(changed); i += step {
		other := bytes.Clone(changed)
		other[i] ^= 1
		if got, err := c.Extract(e.object, other); err == nil && bytes.Equal(got, payload) {
			t.Fatalf("a change of byte %d of %d was not noticed", i, len(changed))
		} else if err != nil && !errors.Is(err, ErrForeign) {
			t.Fatal(err)
		}
	}
	for _, other := range [][]byte{nil, changed[:len(changed)-1], append(bytes.Clone(changed), ' ')} {
		if _, err := c.Extract(e.object, other); !errors.Is(err, ErrForeign) {
			t.Fatalf("%d bytes of %d: %v", len(other), len(changed), err)
		}
	}
}

var tokens = regexp.MustCompile(`[A-Za-z0-9+/=]{16,}`)

// needs skips without a program of a package of Debian. dist/install-deps test installs all of them.
func needs(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("typed skip:", peer.ErrMissing, program+": apt-get install", debian)
	}
}

// judge compares the objects by other programs than those that made them. It skips without one, so it comes last.
func judge(t *testing.T, e example, changed []byte) {
	t.Helper()
	switch e.kind {
	case "application/json":
		if !json.Valid(changed) || tokens.ReplaceAllString(string(changed), "T") != tokens.ReplaceAllString(string(e.object), "T") {
			t.Errorf("it is no JSON any more, or more changed:\n%s", changed)
		}
	case "text/html":
		if a, b := dom(t, e.object), dom(t, changed); a != b {
			t.Errorf("the document changed:\n%s\n%s", a, b)
		}
	case "image/png":
		same(t, e.object, changed)
	case "image/jpeg":
		sameView(t, e.object, changed)
	case "application/pdf":
		samePages(t, e.object, changed)
	case "application/x-shockwave-flash":
		if !bytes.Equal(tagsOf(t, e.object), tagsOf(t, changed)) {
			t.Error("other tags changed, or more of them")
		}
	case "font/woff2":
		needs(t, "woff2_decompress", "woff2")
		for _, file := range [][]byte{e.object, changed} {
			if out, err := printed(t, []string{"woff2_decompress"}, file); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	case "text/javascript":
		nodeAccepts(t, e.object)
		nodeAccepts(t, changed)
	case "text/css":
		uri := regexp.MustCompile(`png;base64,([^)]*)\)`)
		before, now := uri.FindAllSubmatch(e.object, -1), uri.FindAllSubmatch(changed, -1)
		for i := range before {
			a, _ := base64.StdEncoding.DecodeString(string(before[i][1]))
			b, _ := base64.StdEncoding.DecodeString(string(now[i][1]))
			same(t, a, b)
		}
	}
}

func dom(t *testing.T, document []byte) string {
	n, err := html.Parse(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := html.Render(&out, n); err != nil {
		t.Fatal(err)
	}
	return tokens.ReplaceAllString(out.String(), "T")
}

// same compares the pictures as a viewer shows them: with the colours multiplied by alpha.
func same(t *testing.T, a, b []byte) {
	t.Helper()
	before, err := png.Decode(bytes.NewReader(a))
	if err != nil {
		t.Fatal(err)
	}
	now, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if before.Bounds() != now.Bounds() {
		t.Fatal(now.Bounds())
	}
	for y := range before.Bounds().Dy() {
		for x := range before.Bounds().Dx() {
			r1, g1, b1, a1 := before.At(x, y).RGBA()
			r2, g2, b2, a2 := now.At(x, y).RGBA()
			if r1 != r2 || g1 != g2 || b1 != b2 || a1 != a2 {
				t.Fatalf("pixel %d,%d differs", x, y)
			}
		}
	}
}

// Embed uses all characters of a token's alphabet about equally often.
func TestTokensKeepTheirAlphabet(t *testing.T) {
	object := []byte(`["` + opaque64(30000) + `"]`)
	changed, err := For("application/json").Embed(object, random(30000))
	if err != nil || len(changed) != len(object) {
		t.Fatal(err, len(changed))
	}
	counts := map[byte]float64{}
	for _, b := range changed[2 : len(changed)-2] {
		counts[b]++
	}
	for b, n := range counts { // 625 of each, with a standard deviation of 25
		if math.Abs(n-625) > 200 {
			t.Errorf("%q comes %v times", b, n)
		}
	}
	if len(counts) != 64 {
		t.Errorf("%d different characters", len(counts))
	}
}

func FuzzExtract(f *testing.F) {
	for _, e := range examples() {
		f.Add(e.kind, e.object, e.object)
	}
	f.Fuzz(func(t *testing.T, kind string, original, changed []byte) {
		c := For(kind)
		if c == nil {
			return
		}
		n := c.Capacity(original)
		got, err := c.Extract(original, changed)
		if err != nil {
			return
		}
		if len(got) != n {
			t.Fatalf("%d bytes, want %d", len(got), n)
		}
		again, err := c.Embed(original, got)
		if err != nil || !bytes.Equal(again, changed) {
			t.Fatalf("what was extracted does not give the object: %v", err)
		}
	})
}
