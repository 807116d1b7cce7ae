package block

// WindowSize is how far a number may be from the highest one received.
const WindowSize = 1 << 16

// Window knows which numbers of an epoch arrived. The zero value has seen none.
type Window struct {
	seen [WindowSize / 64]uint64
	next uint64 // one more than the highest number received
}

// Fits reports whether a block with the number may be accepted: it is inside the window and did not arrive before.
func (w *Window) Fits(number uint32) bool {
	n := uint64(number)
	switch {
	case n >= w.next:
		return n-w.next < WindowSize
	case w.next-n > WindowSize:
		return false
	}
	return w.seen[n/64%(WindowSize/64)]&(1<<(n%64)) == 0
}

// Mark records a number that fits. The block must have been opened: anybody can guess a number.
func (w *Window) Mark(number uint32) {
	n := uint64(number)
	for ; w.next <= n; w.next++ {
		w.seen[w.next/64%(WindowSize/64)] &^= 1 << (w.next % 64)
	}
	w.seen[n/64%(WindowSize/64)] |= 1 << (n % 64)
}
