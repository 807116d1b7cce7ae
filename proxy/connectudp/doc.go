// Package connectudp is a CONNECT-UDP proxy (RFC 9298) over HTTP/3: the other side of paths of the kind masque.
//
// It serves only authenticated users, forwards only to public addresses unless configured otherwise, and bounds the state that
// each user and each stranger can cause. It does not log who talks to whom, but its owner can see that.
package connectudp
