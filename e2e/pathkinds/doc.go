// Package pathkinds tests the kinds of path through the binary, with captures: WireGuard tunnels, SOCKS5 and MASQUE
// proxies and OpenVPN's devices, alone and mixed in one session, with third-party programs as peers. Tests only.
package pathkinds
