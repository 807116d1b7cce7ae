package handshake

import (
	"crypto/ecdh"
	"encoding/hex"
	"io"

	"filippo.io/edwards25519"
	"filippo.io/edwards25519/field"
	"gitlab.com/yawning/edwards25519-extra/elligator2"
)

// Representative is a public key of X25519 as 32 uniform bytes (Elligator 2).
type Representative [32]byte

// ephemeral is a key pair for one message.
type ephemeral struct {
	private *ecdh.PrivateKey
	public  Representative
}

// newEphemeral draws key pairs until the public key has a representative, which half of them do. The public key includes a point
// of low order, because keys of the prime-order subgroup alone are one eighth of all keys, which an observer could notice. X25519
// removes it again: its scalars are multiples of 8.
func newEphemeral(random io.Reader) (*ephemeral, error) {
	for {
		var seed [33]byte
		if _, err := io.ReadFull(random, seed[:]); err != nil {
			return nil, err
		}
		scalar, err := edwards25519.NewScalar().SetBytesWithClamping(seed[:32])
		if err != nil {
			return nil, err
		}
		tweak := seed[32]
		point := new(edwards25519.Point).ScalarBaseMult(scalar)
		for bit, low := range lowOrder {
			moved := new(edwards25519.Point).Add(point, low)
			point.Select(moved, point, int(tweak>>bit&1))
		}
		public, ok := represent(point.BytesMontgomery(), tweak>>3)
		if !ok {
			continue
		}
		private, err := ecdh.X25519().NewPrivateKey(seed[:32])
		return &ephemeral{private, public}, err
	}
}

// lowOrder are points of order 8, 4 and 2. Sums of them are all eight points of low order.
var lowOrder = func() (points [3]*edwards25519.Point) {
	encoded, err := hex.DecodeString("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
	if err != nil {
		panic(err)
	}
	if points[0], err = new(edwards25519.Point).SetBytes(encoded); err != nil {
		panic(err)
	}
	points[1] = new(edwards25519.Point).Add(points[0], points[0])
	points[2] = new(edwards25519.Point).Add(points[1], points[1])
	return points
}()

var (
	one         = new(field.Element).One()
	montgomeryA = new(field.Element).Mult32(one, 486662)
)

// represent is the inverse map. Bit 0 of the tweak chooses one of the two representatives, bits 3 and 4 fill the two bits that
// no representative uses. Time depends only on whether there is a representative.
func represent(public []byte, tweak byte) (r Representative, ok bool) {
	u, err := new(field.Element).SetBytes(public)
	if err != nil {
		return r, false
	}
	uA := new(field.Element).Add(u, montgomeryA)
	root := new(field.Element).Multiply(u, uA) // then 1/sqrt(-2u(u+A))
	root.Add(root, root).Negate(root)
	if _, square := root.SqrtRatio(one, root); square == 0 {
		return r, false
	}
	root.Multiply(root, u.Select(uA, u, int(tweak&1))) // sqrt(-u/2(u+A)), or sqrt(-(u+A)/2u)
	double := new(field.Element).Add(root, root)
	root.Select(new(field.Element).Negate(root), root, double.IsNegative()) // the root that is at most (p-1)/2
	copy(r[:], root.Bytes())
	r[31] |= tweak << 3 & 0xc0
	return r, true
}

// point is the direct map.
func (r Representative) point() (*ecdh.PublicKey, error) {
	r[31] &= 0x3f
	element, err := new(field.Element).SetBytes(r[:])
	if err != nil {
		return nil, err
	}
	u, _ := elligator2.MontgomeryFlavor(element)
	return ecdh.X25519().NewPublicKey(u.Bytes())
}
