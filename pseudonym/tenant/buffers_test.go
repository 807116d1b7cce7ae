package tenant

import "testing"

// There are so many large buffers and no more, which are used again.
func TestBuffers(t *testing.T) {
	b := newBuffers()
	var all [][]byte
	for range largeBuffers {
		all = append(all, b.Get())
	}
	for i, p := range append(all, b.Get()) {
		if want := map[bool]int{true: largeBuffer, false: smallBuffer}[i < largeBuffers]; len(p) != want {
			t.Errorf("buffer %d has %d bytes, not %d", i, len(p), want)
		}
	}
	b.Put(make([]byte, smallBuffer))
	b.Put(all[0])
	if p := b.Get(); &p[0] != &all[0][0] {
		t.Error("another buffer than the one that was given back")
	}
}
