package netutil

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

const maxHost = 253 // bytes of a DNS name

// SplitHostPort splits HOST:PORT. Unlike [net.SplitHostPort] it accepts brackets only around IPv6 addresses, and refuses
// empty and impossible hosts, and ports that are not numbers from 1 to 65535.
func SplitHostPort(text string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(text)
	n, numberErr := strconv.ParseUint(digits, 10, 16)
	bracketed := strings.HasPrefix(text, "[") == strings.Contains(host, ":")
	if err != nil || numberErr != nil || n == 0 || host == "" || len(host) > maxHost || !bracketed || strings.ContainsAny(host, " \t/@") {
		return "", 0, fmt.Errorf("%.80q is not HOST:PORT", text)
	}
	return host, uint16(n), nil
}
