package contentcoding

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encode returns bytes in a coding.
func encode(t *testing.T, coding string, plain []byte, window int) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "":
		return plain
	case Gzip:
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "br":
		w = brotli.NewWriter(&out)
	case "zstd":
		z, err := zstd.NewWriter(&out, zstd.WithWindowSize(window))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(decoder Decoder, packed []byte) ([]byte, error) {
	r, err := decoder(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestOf(t *testing.T) {
	plain := []byte(strings.Repeat("What is sent. ", 1000))
	for _, c := range []struct {
		values []string
		coding string
		fails  bool
	}{
		{nil, "", false}, {[]string{""}, "", false}, {[]string{"identity"}, "", false}, {[]string{"gzip"}, "gzip", false}, {[]string{" GZip "}, "gzip", false},
		{[]string{"x-gzip"}, "gzip", false}, {[]string{"identity, br"}, "br", false}, {[]string{"identity", "deflate"}, "deflate", false}, {[]string{"zstd"}, "zstd", false},
		{[]string{"gzip, br"}, "", true}, {[]string{"gzip", "gzip"}, "", true}, {[]string{"compress"}, "compress", true},
	} {
		coding, decoder, err := Of(c.values)
		if coding != c.coding || (err != nil) != c.fails || (decoder == nil) != c.fails {
			t.Errorf("%q: %q, %v", c.values, coding, err)
		}
		if c.fails {
			continue
		}
		packed := encode(t, coding, plain, 1<<20)
		if got, err := decode(decoder, packed); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%q: %d bytes, %v", c.values, len(got), err)
		}
		for _, n := range []int{1, len(packed) / 2, len(packed) - 1} {
			if got, err := decode(decoder, packed[:n]); coding != "" && err == nil {
				t.Errorf("%q: %d bytes of %d are taken for all: %d", c.values, n, len(packed), len(got))
			}
		}
	}
}

// A frame that asks for much memory is refused.
func TestWindowOfZstd(t *testing.T) {
	plain := make([]byte, 3*mostWindow)
	_, _ = rand.NewChaCha8([32]byte{}).Read(plain)
	for window, fails := range map[int]bool{mostWindow: false, 2 * mostWindow: true} {
		if _, err := decode(decoders["zstd"], encode(t, "zstd", plain, window)); (err != nil) != fails {
			t.Errorf("a window of %d bytes: %v", window, err)
		}
	}
}

// Decoders read no further than they are asked for, so a limit of what they decode bounds the work.
func TestDecodersAreLazy(t *testing.T) {
	zeros := make([]byte, 64<<20)
	for _, coding := range []string{Gzip, "deflate", "br", "zstd"} {
		packed := encode(t, coding, zeros, 1<<20)
		in := bytes.NewReader(packed)
		r, err := decoders[coding](in)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(r, make([]byte, 1<<20)); n != 1<<20 || err != nil {
			t.Errorf("%s: %d bytes, %v", coding, n, err)
		}
		if coding == Gzip && in.Len() < len(packed)/2 {
			t.Errorf("%s: of %d bytes %d are left", coding, len(packed), in.Len())
		}
		r.Close()
	}
}
