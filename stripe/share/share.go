// Package share splits pieces of a stream into n shares. Any k of them restore a piece; fewer reveal nothing.
//
// There are three schemes. "2of3" is Krawczyk's "Secret sharing made short" (CRYPTO 1993): AES-256-GCM encrypts the piece
// under a fresh key, a Reed-Solomon code disperses the ciphertext, and Shamir's scheme splits the key. It is cheap, and as
// secure as AES. "shamir:2of3" (Shamir, "How to share a secret", CACM 1979) and "xor:3" (which needs all shares) are
// information-theoretic, and each share is as long as the piece. All detect changed shares.
//
// Do not use it to store secrets. It hides nothing from an observer of k paths.
package share

import (
	"fmt"
	"strconv"
	"strings"

	"heddle/path"
)

// MaxShares limits n.
const MaxShares = 16

type kind byte

const (
	none kind = iota
	short
	shamir
	xor
)

// Scheme is a way to share. The zero value is none: each piece takes one path, whole.
type Scheme struct {
	K, N int // K of N shares restore a piece; 0 for none
	kind kind
}

// Parse reads "none", "KofN", "shamir:KofN" or "xor:N".
func Parse(text string) (Scheme, error) {
	if text == "" || text == "none" {
		return Scheme{}, nil
	}
	s := Scheme{kind: short}
	rest := text
	if after, ok := strings.CutPrefix(text, "shamir:"); ok {
		s.kind, rest = shamir, after
	} else if after, ok := strings.CutPrefix(text, "xor:"); ok {
		s.kind, rest = xor, after+"of"+after
	}
	k, n, found := strings.Cut(rest, "of")
	var errK, errN error
	s.K, errK = strconv.Atoi(k)
	s.N, errN = strconv.Atoi(n)
	bad := func(why string) (Scheme, error) {
		return Scheme{}, &path.Error{What: fmt.Sprintf("shares %.40q", text), Why: why, Hint: "write none, 2of3, shamir:2of3, xor:3 or the like"}
	}
	switch {
	case !found || errK != nil || errN != nil || s.String() != text:
		return bad("that is no way to share")
	case s.K < 2:
		return bad("a single share would tell everything")
	case s.K > s.N:
		return bad("more shares are needed than there are")
	case s.N > MaxShares:
		return bad(fmt.Sprintf("more than %d shares", MaxShares))
	}
	return s, nil
}

// None reports whether nothing is shared.
func (s Scheme) None() bool { return s.kind == none }

// String returns the scheme in the syntax of [Parse].
func (s Scheme) String() string {
	switch s.kind {
	case short:
		return fmt.Sprintf("%dof%d", s.K, s.N)
	case shamir:
		return fmt.Sprintf("shamir:%dof%d", s.K, s.N)
	case xor:
		return fmt.Sprintf("xor:%d", s.N)
	}
	return "none"
}

// Claim says in one line what sharing hides beyond TLS, and what it does not.
func (s Scheme) Claim() string {
	open := fmt.Sprintf("whoever sees %d of the %d paths is hindered by TLS alone; the sizes and times of what each path carries stay visible", s.K, s.N)
	switch s.kind {
	case short:
		return fmt.Sprintf("whoever sees fewer than %d of %d paths learns nothing of the content while AES-256 holds, even if the key exchange or a key of TLS is broken; if AES is broken, each path tells its part; %s", s.K, s.N, open)
	case shamir, xor:
		return fmt.Sprintf("whoever sees fewer than %d of %d paths learns nothing of the content, even if every cipher is broken, as long as the kernel's random numbers cannot be foreseen; each path carries as many bytes as the stream; %s", s.K, s.N, open)
	}
	return "each path carries its part of the stream, and if the cipher of TLS is broken, whoever sees a path reads that part"
}

// overhead is the length that a secret adds to the piece: a salt and a check before it, or GCM's tag after it.
const (
	keySize   = 32
	tagSize   = 16
	saltSize  = 16
	checkSize = 16
)

// Size returns the length of each share of a piece, in bytes.
func (s Scheme) Size(piece int) int {
	switch s.kind {
	case short:
		return keySize + (piece+tagSize+s.K-1)/s.K
	case shamir, xor:
		return saltSize + checkSize + piece
	}
	return piece
}

// Capacity returns the longest piece whose shares have at most share bytes, or 0.
func (s Scheme) Capacity(share int) int {
	switch s.kind {
	case short:
		share = (share-keySize)*s.K - tagSize
	case shamir, xor:
		share -= saltSize + checkSize
	}
	return max(share, 0)
}

// ChangedError reports shares that do not belong to the same piece as the others.
type ChangedError struct {
	Shares []int // the changed ones; if not Sure, only some of them are
	Sure   bool
}

// Error names the shares, counted from 1.
func (e *ChangedError) Error() string {
	var names []string
	for _, i := range e.Shares {
		names = append(names, strconv.Itoa(i+1))
	}
	if e.Sure {
		return "changed on the way: share " + strings.Join(names, ", ")
	}
	return "changed on the way: one or more of the shares " + strings.Join(names, ", ")
}
