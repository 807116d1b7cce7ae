package pseudonym

import (
	"io/fs"
	"strings"
	"testing"

	"heddle/cmd/heddle/internal/checks"
)

// A machine whose kernel was set otherwise can be told from others. The hint keeps what does not count.
func TestCheckKernel(t *testing.T) {
	linux := map[string]string{"net/ipv4/tcp_timestamps": "1", "net/ipv4/tcp_sack": "1", "net/ipv4/tcp_window_scaling": "1", "net/ipv4/tcp_ecn": "2", "net/ipv4/ip_default_ttl": "64",
		"net/ipv6/conf/all/hop_limit": "64", "net/ipv4/tcp_congestion_control": "cubic", "net/ipv4/tcp_rmem": "4096\t131072\t6291456", "net/ipv4/tcp_syncookies": "1",
		"net/ipv4/ip_no_pmtu_disc": "0", "net/ipv4/tcp_mtu_probing": "0", "net/ipv4/tcp_slow_start_after_idle": "1", "net/ipv6/auto_flowlabels": "1"}
	check := func(change, value string) checks.Result {
		return checkKernel(func(file string) (string, error) {
			name := strings.TrimPrefix(file, "/proc/sys/")
			if name == change {
				return value, nil
			}
			if text, ok := linux[name]; ok && change != "all" {
				return text, nil
			}
			return "", fs.ErrNotExist
		})
	}
	if r := check("", ""); r.Verdict != checks.Yes {
		t.Errorf("%+v", r)
	}
	for file, c := range map[string]struct{ value, hint string }{
		"net/ipv4/tcp_timestamps":         {"0", "sysctl -w net.ipv4.tcp_timestamps='1'"},
		"net/ipv4/tcp_sack":               {"0", "sysctl -w net.ipv4.tcp_sack='1'"},
		"net/ipv4/tcp_window_scaling":     {"0", "sysctl -w net.ipv4.tcp_window_scaling='1'"},
		"net/ipv4/tcp_ecn":                {"1", "sysctl -w net.ipv4.tcp_ecn='2'"},
		"net/ipv4/ip_default_ttl":         {"128", "sysctl -w net.ipv4.ip_default_ttl='64'"},
		"net/ipv6/conf/all/hop_limit":     {"255", "sysctl -w net.ipv6.conf.all.hop_limit='64'"},
		"net/ipv4/tcp_congestion_control": {"bbr", "sysctl -w net.ipv4.tcp_congestion_control='cubic'"},
		"net/ipv4/tcp_rmem":               {"8192 87380 6291456", "sysctl -w net.ipv4.tcp_rmem='8192 131072 6291456'"},
		"net/ipv4/tcp_syncookies":         {"0", "sysctl -w net.ipv4.tcp_syncookies='1'"},
		"net/ipv4/ip_no_pmtu_disc":        {"1", "sysctl -w net.ipv4.ip_no_pmtu_disc='0'"},
		"net/ipv4/tcp_mtu_probing":        {"2", "sysctl -w net.ipv4.tcp_mtu_probing='0'"},
		"net/ipv6/auto_flowlabels":        {"0", "sysctl -w net.ipv6.auto_flowlabels='1'"},

		"net/ipv4/tcp_slow_start_after_idle": {"0", "sysctl -w net.ipv4.tcp_slow_start_after_idle='1'"},
	} {
		if r := check(file, c.value); r.Verdict != checks.Partly || !strings.Contains(r.What, c.value) || !strings.HasPrefix(r.Hint, c.hint+"; or") {
			t.Errorf("%s: %+v", file, r)
		}
	}
	if r := check("net/ipv4/tcp_rmem", "1 131072 6291456"); r.Verdict != checks.Yes {
		t.Errorf("%+v", r)
	}
	if r := check("net/ipv4/tcp_rmem", "4096 131072 8388608"); r.Verdict != checks.Partly || !strings.HasPrefix(r.Hint, "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'") {
		t.Errorf("a larger window scale: %+v", r)
	}
	if r := check("all", ""); r.Verdict != checks.Unknown {
		t.Errorf("without settings: %+v", r)
	}
}

// A route or a device that is set otherwise tells a machine too.
func TestCheckRoutes(t *testing.T) {
	for name, c := range map[string]struct {
		ways       []wayToClients
		err        error
		verdict    checks.Verdict
		what, hint string
	}{
		"as others":  {[]wayToClients{{"eth0", 1500, ""}, {"eth0", 1500, ""}}, nil, checks.Yes, "as those of other machines", ""},
		"a tunnel":   {[]wayToClients{{"eth0", 1500, ""}, {"wg0", 1420, ""}}, nil, checks.Partly, "wg0 has an MTU of 1420", "ip link set wg0 mtu 1500; or"},
		"slow start": {[]wayToClients{{"eth0", 1500, "initcwnd 4"}}, nil, checks.Partly, "has initcwnd 4", "without initcwnd 4; or"},
		"no route":   {nil, nil, checks.Unknown, "", "default route"},
		"no Linux":   {nil, fs.ErrNotExist, checks.Unknown, "", "on Linux"},
	} {
		if r := checkRoutes(c.ways, c.err); r.Verdict != c.verdict || !strings.Contains(r.What, c.what) || !strings.Contains(r.Hint, c.hint) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
