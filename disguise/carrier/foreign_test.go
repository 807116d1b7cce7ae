package carrier

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"image/png"
	"testing"
)

// another embeds random bytes, writes a part of the result in another way, and expects that Extract refuses it. edit
// returns nil for a result that it cannot write otherwise: then other bytes are embedded.
func another(t *testing.T, kind string, object []byte, edit func([]byte) []byte) {
	t.Helper()
	c := For(kind)
	var changed, other []byte
	for range 1000 {
		var err error
		if changed, err = c.Embed(object, random(c.Capacity(object))); err != nil {
			t.Fatal(err)
		}
		if other = edit(bytes.Clone(changed)); other != nil {
			break
		}
	}
	if other == nil || bytes.Equal(other, changed) {
		t.Fatalf("the edit changes nothing: %s", changed)
	}
	if got, err := c.Extract(object, other); !errors.Is(err, ErrForeign) {
		t.Errorf("%s written in another way says %x, %v", kind, got, err)
	}
}

// Only what Embed makes is accepted, and no other object that says the same.
func TestOtherWaysToWriteTheSame(t *testing.T) {
	another(t, "application/json", []byte(`["`+hex.EncodeToString(random(32))+`"]`), bytes.ToUpper)
	css := []byte("a{background:url(data:image/png;base64," + base64.StdEncoding.EncodeToString(disc(8)) + ")}")
	another(t, "text/css", css, func(changed []byte) []byte {
		at := bytes.IndexByte(changed, '=') - 1 // some bits of this character say nothing
		if at < 0 {
			return nil
		}
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
		changed[at] = alphabet[bytes.IndexByte([]byte(alphabet), changed[at])|1]
		return changed
	})
	another(t, "image/png", disc(20), func(changed []byte) []byte {
		m, err := png.Decode(bytes.NewReader(changed))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, m); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	})
}

// Text that uses each character once does not compress, and is text all the same.
func TestTextIsNoToken(t *testing.T) {
	const text = `>?>q7$Zk(W2m~Xv!9Lp<Rd@5Hs}Bn&4Jf{Qe^8Gt*Ya+1Uc=3Mw/6Kx|0Eb`
	token := base64.StdEncoding.EncodeToString([]byte(text))
	if n := For("application/json").Capacity([]byte(`["` + token + `"]`)); n != 0 {
		t.Errorf("%s hides %d bytes", token, n)
	}
}

// Paeth's predictor takes the byte above if it and the one in the corner are as good (PNG, section 9.4).
func TestPaeth(t *testing.T) {
	for _, c := range []struct{ left, up, corner, want byte }{{1, 2, 3, 1}, {8, 14, 10, 14}, {10, 20, 10, 20}, {5, 5, 5, 5}, {0, 100, 60, 60}, {100, 0, 60, 60}} {
		if got := paeth(c.left, c.up, c.corner); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// Samples that do not fit to the media data, or to what is said of their parts, hide nothing.
func TestDamagedMedia(t *testing.T) {
	whole := segment()
	at := bytes.Index(whole, []byte("mdat")) - 4
	short := bytes.Clone(whole)
	binary.BigEndian.PutUint32(short[at:], 8+140)
	rest := short[at+8+140:]
	binary.BigEndian.PutUint32(rest, uint32(len(rest)))
	copy(rest[4:], "free")
	parts := bytes.Replace(whole, []byte{0, 5, 0, 0, 0, 15, 0, 10, 0, 0, 0, 20}, []byte{0, 5, 0, 0, 0, 15, 0, 10, 0, 0, 0, 19}, 1)
	for name, file := range map[string][]byte{"samples beyond the media data": short, "parts that are less than a sample": parts} {
		if bytes.Equal(file, whole) {
			t.Fatal(name)
		}
		if n := For("video/mp4").Capacity(file); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// Vectors of a segment change with its ciphertext, and all by the same number. Those that do not are foreign.
func TestVectorsOfMedia(t *testing.T) {
	first := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}
	whole, media := segment(), For("video/mp4")
	at := bytes.Index(whole, []byte("senc")) + 12
	second := at + 16
	binary.BigEndian.PutUint64(whole[at:], 7)
	binary.BigEndian.PutUint64(whole[second:], 10)
	payload := append(first, random(125)...)
	made, err := media.Embed(whole, payload)
	if err != nil {
		t.Fatal(err)
	}
	if got := [2]uint64{binary.BigEndian.Uint64(made[at:]), binary.BigEndian.Uint64(made[second:])}; got != [2]uint64{1<<64 - 2, 1} {
		t.Errorf("vectors %x", got)
	}
	if got, err := media.Extract(whole, made); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%x, %v", got, err)
	}
	made[second+7]++
	if _, err := media.Extract(whole, made); !errors.Is(err, ErrForeign) {
		t.Errorf("a vector of its own: %v", err)
	}
}
