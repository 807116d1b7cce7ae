package targets

import "golang.org/x/sys/unix"

// neverFragment sets "don't fragment" on a socket.
func neverFragment(fd uintptr, four bool) error {
	if four {
		return unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
}
