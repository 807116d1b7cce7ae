package share

import (
	"crypto/subtle"
	"errors"
	"fmt"
)

var errChanged = errors.New("the shares do not fit together")

// Join restores the piece of size bytes from at least K shares; missing ones are nil. The piece is valid until the next
// call. If the first K shares do not fit together, Join tries other sets of K. If one fits, it returns the piece and a
// [ChangedError] that names the changed shares; otherwise it returns no piece.
func (c *Codec) Join(number uint64, size int, shares [][]byte) ([]byte, error) {
	if size < 0 || len(shares) != c.scheme.N {
		return nil, fmt.Errorf("%d shares of a piece of %d bytes, and there are %d", len(shares), size, c.scheme.N)
	}
	var present, wrong []int
	for i, b := range shares {
		switch {
		case b == nil:
		case len(b) != c.scheme.Size(size):
			wrong = append(wrong, i)
		default:
			present = append(present, i)
		}
	}
	if len(present) < c.scheme.K {
		if len(wrong) > 0 {
			return nil, &ChangedError{Shares: wrong, Sure: true}
		}
		return nil, fmt.Errorf("%d shares, and it takes %d", len(present), c.scheme.K)
	}
	plain, err := c.join(number, size, shares, present[:c.scheme.K])
	if err == nil && wrong == nil {
		return plain, nil
	}
	var used []int
	if err == nil {
		used = present[:c.scheme.K]
	} else if plain, used = c.search(number, size, shares, present); used == nil {
		return nil, &ChangedError{Shares: append(present, wrong...)}
	}
	return plain, &ChangedError{Shares: append(c.strangers(size, shares, present, used), wrong...), Sure: true}
}

// search tries all sets of K shares.
func (c *Codec) search(number uint64, size int, shares [][]byte, present []int) (plain []byte, used []int) {
	chosen := make([]int, 0, c.scheme.K)
	var try func(from int) bool
	try = func(from int) bool {
		if len(chosen) == c.scheme.K {
			var err error
			plain, err = c.join(number, size, shares, chosen)
			return err == nil
		}
		for i := from; len(present)-i >= c.scheme.K-len(chosen); i++ {
			chosen = append(chosen, present[i])
			if try(i + 1) {
				return true
			}
			chosen = chosen[:len(chosen)-1]
		}
		return false
	}
	if !try(0) {
		return nil, nil
	}
	return plain, chosen
}

// strangers returns the shares that do not match the ones used.
func (c *Codec) strangers(size int, shares [][]byte, present, used []int) []int {
	points, values := c.values(shares, used)
	length := c.scheme.Size(size)
	if c.scheme.kind == short {
		length = keySize
		clear(c.shards)
		for _, i := range used {
			c.shards[i] = shares[i][keySize:]
		}
		if err := c.code.Reconstruct(c.shards); err != nil {
			return nil
		}
	}
	var changed []int
	right := make([]byte, length)
	for _, i := range present {
		interpolate(points, values, byte(i+1), right)
		same := subtle.ConstantTimeCompare(right, shares[i][:length]) == 1
		if c.scheme.kind == short {
			same = same && subtle.ConstantTimeCompare(c.shards[i], shares[i][keySize:]) == 1
		}
		if !same {
			changed = append(changed, i)
		}
	}
	return changed
}

func (c *Codec) values(shares [][]byte, used []int) (points []byte, values [][]byte) {
	for _, i := range used {
		points = append(points, byte(i+1))
		values = append(values, shares[i])
	}
	return points, values
}

func (c *Codec) join(number uint64, size int, shares [][]byte, used []int) ([]byte, error) {
	if c.scheme.kind == short {
		return c.joinShort(number, size, shares, used)
	}
	c.sealed = resize(c.sealed, c.scheme.Size(size))
	if c.scheme.kind == shamir {
		points, values := c.values(shares, used)
		interpolate(points, values, 0, c.sealed)
	} else {
		copy(c.sealed, shares[used[0]])
		for _, i := range used[1:] {
			subtle.XORBytes(c.sealed, c.sealed, shares[i])
		}
	}
	plain := c.sealed[saltSize+checkSize:]
	sum := check(c.sealed[:saltSize], number, plain)
	if subtle.ConstantTimeCompare(sum[:checkSize], c.sealed[saltSize:saltSize+checkSize]) != 1 {
		return nil, errChanged
	}
	return plain, nil
}

func (c *Codec) joinShort(number uint64, size int, shares [][]byte, used []int) ([]byte, error) {
	var key [keySize]byte
	points, values := c.values(shares, used)
	interpolate(points, values, 0, key[:])
	part := len(shares[used[0]]) - keySize
	c.sealed = resize(c.sealed, part*c.scheme.K)
	required := make([]bool, c.scheme.K)
	for i := range c.shards {
		c.shards[i] = nil
		if i < c.scheme.K {
			c.shards[i] = c.sealed[i*part : i*part : (i+1)*part] // empty, with capacity to restore into
			required[i] = true
		}
	}
	missing := false
	for _, i := range used {
		if i < c.scheme.K {
			copy(c.sealed[i*part:], shares[i][keySize:])
			c.shards[i] = c.sealed[i*part : (i+1)*part]
			required[i] = false
		} else {
			c.shards[i], missing = shares[i][keySize:], true
		}
	}
	if missing {
		if err := c.code.ReconstructSome(c.shards, required); err != nil {
			return nil, err
		}
	}
	open, err := aead(key[:])
	if err != nil {
		return nil, err
	}
	where := bound(number, size)
	c.plain, err = open.Open(resize(c.plain, size)[:0], nonce[:], c.sealed[:size+tagSize], where[:])
	if err != nil {
		return nil, errChanged
	}
	for _, b := range c.sealed[size+tagSize:] { // GCM does not authenticate the padding of the last part
		if b != 0 {
			return nil, errChanged
		}
	}
	return c.plain, nil
}
