package wgconf

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/netutil"
)

// field is one key of a section. set takes its value, and returns the problem and a hint, or "".
type field struct {
	name    string
	repeats bool
	set     func(c *Config, value string) (why, hint string)
}

// section is one section of a file. The names of its fields are in lower case.
type section struct {
	title  string
	fields map[string]field
}

var interfaceSection = section{"[Interface]", index(
	field{"PrivateKey", false, func(c *Config, v string) (string, string) { return setKey(&c.Interface.PrivateKey, v) }},
	field{"Address", true, func(c *Config, v string) (string, string) { return addPrefixes(&c.Interface.Addresses, v, false) }},
	field{"DNS", true, setDNS},
	field{"MTU", false, setMTU},
	field{"Table", false, setTable},
	field{"FwMark", false, setFwMark},
	field{"ListenPort", false, setListenPort},
	field{"PreUp", true, func(c *Config, v string) (string, string) { return addCommand(&c.Interface.PreUp, v) }},
	field{"PostUp", true, func(c *Config, v string) (string, string) { return addCommand(&c.Interface.PostUp, v) }},
	field{"PreDown", true, func(c *Config, v string) (string, string) { return addCommand(&c.Interface.PreDown, v) }},
	field{"PostDown", true, func(c *Config, v string) (string, string) { return addCommand(&c.Interface.PostDown, v) }},
	field{"SaveConfig", false, setSaveConfig},
)}

var peerSection = section{"[Peer]", index(
	field{"PublicKey", false, func(c *Config, v string) (string, string) { return setKey(&c.Peer.PublicKey, v) }},
	field{"PresharedKey", false, func(c *Config, v string) (string, string) { return setKey(&c.Peer.PresharedKey, v) }},
	field{"AllowedIPs", true, func(c *Config, v string) (string, string) { return addPrefixes(&c.Peer.AllowedIPs, v, true) }},
	field{"Endpoint", false, setEndpoint},
	field{"PersistentKeepalive", false, setKeepalive},
)}

func index(fields ...field) map[string]field {
	m := map[string]field{}
	for _, f := range fields {
		m[strings.ToLower(f.name)] = f
	}
	return m
}

func names(fields map[string]field) string {
	var list []string
	for f := range maps.Values(fields) {
		list = append(list, f.name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func setKey(k *Key, value string) (string, string) {
	parsed, err := ParseKey(value)
	if err != nil {
		return err.Error(), "a key is 44 characters of base64 ending in '=', as `wg genkey` prints it"
	}
	if parsed.IsZero() {
		return "it is all zeros", "give the real key"
	}
	*k = parsed
	return "", ""
}

// addPrefixes parses a comma-separated list of addresses with optional prefix length. masked clears the host bits.
func addPrefixes(list *[]netip.Prefix, value string, masked bool) (string, string) {
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		prefix, err := netip.ParsePrefix(item)
		if addr, addrErr := netip.ParseAddr(item); err != nil && addrErr == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return fmt.Sprintf("%s is no IP address with prefix length", shorten(item)), "write for example 10.0.0.2/32 or fd00::2/128"
		}
		if masked {
			prefix = prefix.Masked()
		}
		if !slices.Contains(*list, prefix) {
			*list = append(*list, prefix)
		}
	}
	return "", ""
}

// setDNS parses a comma-separated list of resolvers and search domains, as wg-quick does.
func setDNS(c *Config, value string) (string, string) {
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		if addr, err := netip.ParseAddr(item); err == nil {
			c.Interface.DNS = append(c.Interface.DNS, addr)
			continue
		}
		if !isDomain(item) {
			return fmt.Sprintf("%s is neither an IP address nor a domain", shorten(item)), "write for example DNS = 10.0.0.1, corp.example"
		}
		c.Interface.Search = append(c.Interface.Search, strings.TrimSuffix(item, "."))
	}
	return "", ""
}

// isDomain reports whether text is a DNS name of letters, digits, '-' and '_' (RFC 1123, section 2.1), and no number.
func isDomain(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 253 {
		return false
	}
	labels := strings.Split(text, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-'
			if !letter && (c < '0' || c > '9') {
				return false
			}
		}
	}
	_, err := strconv.ParseUint(labels[len(labels)-1], 0, 64)
	return err != nil
}

// setNumber parses a number from least to most in a base; base 0 accepts prefixes such as 0x.
func setNumber[N int | uint16 | uint32](n *N, value string, base int, least, most uint64, what, hint string) (string, string) {
	parsed, err := strconv.ParseUint(value, base, 32)
	if err != nil || parsed < least || parsed > most {
		return fmt.Sprintf("%s is no %s", shorten(value), what), hint
	}
	*n = N(parsed)
	return "", ""
}

func setMTU(c *Config, value string) (string, string) {
	return setNumber(&c.Interface.MTU, value, 10, 576, 65455, "MTU",
		"write a number of bytes from 576 (1280 where the tunnel has IPv6) to 65455, or remove the line")
}

func setTable(c *Config, value string) (string, string) {
	named := map[string]Table{"off": {Off: true}, "auto": {}, "default": {Number: 253}, "main": {Number: 254}, "local": {Number: 255}}
	if t, ok := named[strings.ToLower(value)]; ok {
		c.Interface.Table = t
		return "", ""
	}
	return setNumber(&c.Interface.Table.Number, value, 0, 1, math.MaxUint32, "routing table", "write off, auto, main or a number from 1 to 4294967295")
}

func setFwMark(c *Config, value string) (string, string) {
	if strings.EqualFold(value, "off") {
		return "", ""
	}
	return setNumber(&c.Interface.FwMark, value, 0, 0, math.MaxUint32, "mark", "write off or a number such as 0xca6c")
}

func setListenPort(c *Config, value string) (string, string) {
	why, hint := setNumber(&c.Interface.ListenPort, value, 10, 0, math.MaxUint16, "port", "write a number from 0 to 65535")
	if c.Interface.ListenPort != 0 {
		c.Warnings = append(c.Warnings, "ListenPort has no effect: each path has a port of its own")
	}
	return why, hint
}

func addCommand(list *[]string, value string) (string, string) {
	*list = append(*list, value)
	return "", ""
}

func setSaveConfig(c *Config, value string) (string, string) {
	switch strings.ToLower(value) {
	case "true":
		c.Warnings = append(c.Warnings, "SaveConfig has no effect: heddle never writes to the file")
	case "false":
	default:
		return fmt.Sprintf("%s is neither true nor false", shorten(value)), "remove the line: heddle never writes to the file"
	}
	return "", ""
}

// setEndpoint parses HOST:PORT: an IPv4 address, an IPv6 address in brackets, or a name.
func setEndpoint(c *Config, value string) (string, string) {
	const hint = "write for example vpn.example.com:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"
	host, _, err := netutil.SplitHostPort(value)
	if err != nil {
		return fmt.Sprintf("%s is not HOST:PORT", shorten(value)), hint
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && (addr.IsUnspecified() || addr.IsMulticast()):
		return fmt.Sprintf("%s is no address of a server", shorten(host)), hint
	case err != nil && !isDomain(host):
		return fmt.Sprintf("%s is neither an IP address nor a name", shorten(host)), hint
	}
	c.Peer.Endpoint = value
	return "", ""
}

func setKeepalive(c *Config, value string) (string, string) {
	if strings.EqualFold(value, "off") {
		return "", ""
	}
	return setNumber(&c.Peer.PersistentKeepalive, value, 10, 0, math.MaxUint16, "number of seconds",
		"write off or a number from 0 to 65535; 25 is usual")
}
