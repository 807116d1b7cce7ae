package doctor

import (
	"bytes"
	"testing"

	"heddle/cmd/heddle/internal/clitest"
)

func TestDoctorText(t *testing.T) {
	report := Report{
		Kernel: "6.1.0",
		Interfaces: []Interface{{
			Name: "eth0", Up: true, MTU: 1500, Addresses: []string{"192.168.1.2/24", "fe80::1/64"},
			Defaults: []Route{{Family: "IPv4", Via: "192.168.1.1", Table: 254, Metric: 100}, {Family: "IPv4", Table: 77}},
			IPv4:     Result{Verdict: Yes, What: "leaves as 192.168.1.2"},
			IPv6:     Result{Verdict: No, What: "no IPv6 address", Hint: "wait for router advertisements"},
		}, {Name: "wlan0", MTU: 1500}},
		Backends: backendsHere(nil, Yes, No),
		Checks: []Result{
			{Check: "udp-gso", Verdict: Yes, What: "many datagrams go out in one call (UDP_SEGMENT)"},
			{Check: "nftables", Verdict: Unknown, What: "trying it needs CAP_SYS_ADMIN", Hint: "run as root"},
		},
	}
	var out bytes.Buffer
	if err := printReport(&out, report, 0); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "doctor.golden", out.String())
}
