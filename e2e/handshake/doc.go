// Package handshake tests `heddle split --handshake-via`: two access networks have a censor that blocks QUIC and TLS by
// server name, a third has none. A listed page loads with its handshake on the third, and the other two see no
// handshake. Without that, each handshake keeps the path on which it began. Tests only.
package handshake
