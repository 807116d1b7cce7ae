// Package handshake tests, in a world, what `heddle split --handshake-via` is for: two access networks have a censor that
// cuts off QUIC and TLS by the server's name, a third has none. The page of a listed name loads through Heddle with its
// handshake on the third, and nothing of a handshake shows on the other two.
//
// It holds tests only.
package handshake
