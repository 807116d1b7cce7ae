package carrier

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// A reader gives the same payload as Extract. It tells a failure of the network from another object.
func TestReader(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.kind+"/"+e.what, func(t *testing.T) {
			c, payload := For(e.kind), random(e.capacity)
			changed, err := c.Embed(e.object, payload)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(Reader(c, e.object, iotest.OneByteReader(bytes.NewReader(changed))))
			if err != nil || !bytes.Equal(got, payload) {
				t.Fatalf("%v: %x, want %x", err, got, payload)
			}
			broken := errors.New("broken")
			if _, err := io.ReadAll(Reader(c, e.object, io.MultiReader(bytes.NewReader(changed[:len(changed)/2]), iotest.ErrReader(broken)))); !errors.Is(err, broken) {
				t.Errorf("the network broke: %v", err)
			}
			for _, other := range [][]byte{nil, changed[:len(changed)-1], append(bytes.Clone(changed), ' ')} {
				if _, err := io.ReadAll(Reader(c, e.object, bytes.NewReader(other))); !errors.Is(err, ErrForeign) {
					t.Errorf("%d bytes of %d: %v", len(other), len(changed), err)
				}
			}
		})
	}
}

// Pictures and media give what they hide before all of them is there.
func TestReaderIsEarly(t *testing.T) {
	for kind, object := range map[string][]byte{"image/png": disc(200), "video/mp4": bytes.Repeat(segment(), 20)} {
		c := For(kind)
		payload := random(c.Capacity(object))
		changed, err := c.Embed(object, payload)
		if err != nil {
			t.Fatal(err)
		}
		half := bytes.NewReader(changed[:len(changed)/2])
		got, err := io.ReadAll(Reader(c, object, io.MultiReader(half, iotest.ErrReader(io.ErrUnexpectedEOF))))
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(got) < len(payload)/3 || !bytes.HasPrefix(payload, got) {
			t.Errorf("%s: half of it gives %d bytes of %d: %v", kind, len(got), len(payload), err)
		}
	}
}

// A reader gets the payload of each part of a picture before the writer has the rest.
func TestPicturesArriveByParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, object := For("image/png"), disc(200)
		payload := random(c.Capacity(object))
		filled, fill := io.Pipe()
		arriving, arrive := io.Pipe()
		flushed := 0
		go func() {
			arrive.CloseWithError(Write(flusher{arrive, &flushed}, c, object, filled))
		}()
		var got bytes.Buffer
		go func() {
			if _, err := io.Copy(&got, Reader(c, object, arriving)); err != nil {
				t.Errorf("the picture is foreign: %v", err)
			}
		}()
		for at := 0; at < len(payload); {
			n, err := fill.Write(payload[at:min(at+1000, len(payload))])
			if err != nil {
				t.Fatal(err)
			}
			at += n
			synctest.Wait()
			if late := at - got.Len(); late > 2*partSize || !bytes.HasPrefix(payload, got.Bytes()) {
				t.Fatalf("of %d bytes, %d arrived", at, got.Len())
			}
		}
		if synctest.Wait(); got.Len() != len(payload) || flushed < len(payload)/partSize-1 {
			t.Errorf("%d bytes of %d arrived, in %d parts", got.Len(), len(payload), flushed)
		}
	})
}

// flusher counts how often a writer asks that what it wrote leaves.
type flusher struct {
	io.Writer
	n *int
}

func (f flusher) Flush() error {
	*f.n++
	return nil
}
