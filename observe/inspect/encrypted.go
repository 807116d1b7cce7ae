package inspect

import (
	"bytes"
	"math/bits"
)

// Exemption applies the rule for fully encrypted traffic of the Great Firewall (Wu et al., USENIX Security 2023) to the payload of
// the first data packet of a TCP connection. It returns the part of the rule that lets the connection pass, or nothing if
// the connection is cut.
func Exemption(first []byte) string {
	set, inRow, longest, readable := 0, 0, 0, 0
	for _, b := range first {
		set += bits.OnesCount8(b)
		inRow++
		if b < ' ' || b > '~' {
			inRow = 0
			continue
		}
		readable++
		longest = max(longest, inRow)
	}
	start := min(len(first), 6)
	switch n := len(first); {
	case n == 0:
		return "empty"
	case 10*set <= 34*n:
		return "few set bits"
	case 10*set >= 46*n:
		return "many set bits"
	case start == 6 && isPrintable(first[:start]):
		return "printable start"
	case 2*readable > n:
		return "mostly printable"
	case longest > 20:
		return "printable run"
	case n >= 3 && (first[0] == 0x16 || first[0] == 0x17) && first[1] == 3 && first[2] <= 9:
		return "TLS"
	}
	for _, method := range []string{"GET ", "PUT ", "POST ", "HEAD "} {
		if bytes.HasPrefix(first, []byte(method)) {
			return "HTTP"
		}
	}
	return ""
}

func isPrintable(b []byte) bool {
	for _, one := range b {
		if one < ' ' || one > '~' {
			return false
		}
	}
	return true
}
