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
		"net/ipv6/conf/all/hop_limit": "64", "net/ipv4/tcp_congestion_control": "cubic", "net/ipv4/tcp_rmem": "4096\t131072\t6291456", "net/ipv4/tcp_syncookies": "1"}
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
		"net/ipv4/tcp_rmem":               {"4096 87380 8388608", "sysctl -w net.ipv4.tcp_rmem='4096 131072 8388608'"},
		"net/ipv4/tcp_syncookies":         {"0", "sysctl -w net.ipv4.tcp_syncookies='1'"},
	} {
		if r := check(file, c.value); r.Verdict != checks.Partly || !strings.Contains(r.What, c.value) || !strings.HasPrefix(r.Hint, c.hint+"; or") {
			t.Errorf("%s: %+v", file, r)
		}
	}
	for _, value := range []string{"4096 131072 8388608", "1 131072 9"} {
		if r := check("net/ipv4/tcp_rmem", value); r.Verdict != checks.Yes {
			t.Errorf("%s: %+v", value, r)
		}
	}
	if r := check("all", ""); r.Verdict != checks.Unknown {
		t.Errorf("without settings: %+v", r)
	}
}
