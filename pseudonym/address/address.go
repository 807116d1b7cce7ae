// Package address makes IPv6 pseudo-addresses: each names a tenant to those who hold the key, and nothing to others.
//
// The interface identifier, the last 64 bits, is one encrypted block:
//
//	check (24 bits, all 0) | tenant (16 bits) | nonce (24 bits)
//
// A block cipher that is a strong pseudorandom permutation makes such a block authentic (encode-then-encipher: Bellare and Rogaway,
// ASIACRYPT 2000): an identifier that nobody sealed opens with probability 2^-24 for each key. So whoever holds the keys finds the
// tenant of a packet without any state.
package address

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// The parts of a block, in bits.
const (
	tenantBits = 16
	nonceBits  = 24
)

// MaxKeys is how many keys a ring holds: the one that addresses are sealed with, the next one, and older ones for connections that are
// open. Each key adds to the random identifiers that open.
const MaxKeys = 4

// PerName is how many addresses a name has under one key. A user can ask for the addresses of her own names as often as she likes. Without
// this bound she would soon know all 2^24 addresses of a tenant, and so which other clients visit it.
const PerName = 1024

// prefixBits is the length of the prefix that interface identifiers follow (RFC 4291, section 2.5.1).
const prefixBits = 64

// KeySize is the length of a [Key] in bytes.
const KeySize = cipherKeySize + 16

// Key encrypts interface identifiers with its first 16 bytes, and draws nonces with the others.
type Key [KeySize]byte

// NewKey draws a key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // it never fails
	return k
}

// String does not show the key, so that no log does.
func (Key) String() string { return "[key]" }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// Epoch is a key with the time from which addresses are sealed with it. All who open addresses must have the key before that.
type Epoch struct {
	Key  Key
	From time.Time
}

// Ring seals and opens interface identifiers with the keys of the present. It does not change, and may be used concurrently.
type Ring struct {
	epochs  []Epoch // the newest first
	ciphers []*Speck
}

// NewRing makes a ring of up to [MaxKeys] keys, the newest first.
func NewRing(epochs ...Epoch) (*Ring, error) {
	if len(epochs) == 0 || len(epochs) > MaxKeys {
		return nil, fmt.Errorf("a ring of %d keys: it takes 1 to %d", len(epochs), MaxKeys)
	}
	r := &Ring{epochs: epochs}
	for i, e := range epochs {
		if i > 0 && (e.Key == epochs[i-1].Key || !e.From.Before(epochs[i-1].From)) {
			return nil, errors.New("the keys of a ring must differ, and each begin before the one in front of it")
		}
		r.ciphers = append(r.ciphers, newSpeck([cipherKeySize]byte(e.Key[:])))
	}
	return r, nil
}

// Ciphers returns what opens addresses, for a program that opens them by itself, in the order in which [Ring.Open] tries them.
func (r *Ring) Ciphers() []*Speck { return r.ciphers }

// Seal gives a new address of the tenant for a name, in the prefix, which must be a /64. It uses the newest key that has begun, or the
// oldest if none has.
func (r *Ring) Seal(prefix netip.Prefix, tenant uint16, name string, now time.Time) (netip.Addr, error) {
	if !ValidPrefix(prefix) {
		return netip.Addr{}, fmt.Errorf("the prefix %v of pseudo-addresses is not an IPv6 prefix of /%d", prefix, prefixBits)
	}
	key := 0
	for key < len(r.epochs)-1 && r.epochs[key].From.After(now) {
		key++
	}
	for {
		block := uint64(tenant)<<nonceBits | uint64(r.epochs[key].Key.nonce(name))
		id := r.ciphers[key].encrypt(block)
		if found, ok := r.open(id); ok && found == block && !reserved(id) { // else another key, tried before, opens it too
			a := prefix.Addr().As16()
			binary.BigEndian.PutUint64(a[8:], id)
			return netip.AddrFrom16(a), nil
		}
	}
}

// ValidPrefix reports whether addresses can be sealed in a prefix: an IPv6 prefix of /64 without further bits.
func ValidPrefix(p netip.Prefix) bool {
	return p.Addr().Is6() && !p.Addr().Is4In6() && p.Bits() == prefixBits && p == p.Masked()
}

// Open gives the tenant of an address, whatever its prefix, or false if no key opens it.
func (r *Ring) Open(a netip.Addr) (tenant uint16, ok bool) {
	if !a.Is6() || a.Is4In6() {
		return 0, false
	}
	bytes := a.As16()
	block, ok := r.open(binary.BigEndian.Uint64(bytes[8:]))
	return uint16(block >> nonceBits), ok
}

// open tries the newest key first: most addresses are of that one.
func (r *Ring) open(id uint64) (block uint64, ok bool) {
	for _, c := range r.ciphers {
		if block = c.decrypt(id); block>>(tenantBits+nonceBits) == 0 {
			return block, true
		}
	}
	return 0, false
}

// nonce draws one of the nonces of a name. All who have the key know them, so that several nameservers do not multiply them.
func (k Key) nonce(name string) uint32 {
	var drawn [2]byte
	_, _ = rand.Read(drawn[:]) // it never fails
	mac := hmac.New(sha256.New, k[cipherKeySize:])
	mac.Write(binary.BigEndian.AppendUint16(nil, binary.BigEndian.Uint16(drawn[:])%PerName))
	mac.Write([]byte(name))
	return binary.BigEndian.Uint32(mac.Sum(nil)) >> (32 - nonceBits)
}

// reserved tells the interface identifiers that no host may have (RFC 5453): that of all routers, those of the IANA's Ethernet
// block, and those of anycast addresses.
func reserved(id uint64) bool {
	return id == 0 || id>>24 == 0x02005efffe || id>>7 == 0xfdffffffffffff80>>7
}
