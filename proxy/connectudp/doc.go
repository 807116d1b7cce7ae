// Package connectudp is a CONNECT-UDP proxy (RFC 9298) over HTTP/3: the other side of paths of the kind masque.
//
// It serves only whom it knows, forwards to public addresses unless told otherwise, and bounds what each user and each
// stranger can make it keep. It does not hide from its owner who talks to whom; it only does not write it down.
package connectudp
