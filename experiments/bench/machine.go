package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine of a bench.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory uint64 `json:"memory"` // bytes
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	Go     string `json:"go"`
	// Congestion is the congestion control of TCP in the worlds. Goodputs depend on it.
	Congestion string `json:"congestion_control"`
}

// String describes the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.1f GiB, Linux %s with TCP %s, %s", m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.Congestion, m.Go)
}

// Load is the load average over one minute, at the start and end of the bench.
type Load struct {
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

func thisMachine() Machine {
	m := Machine{CPU: "unknown processor", Cores: runtime.NumCPU(), Arch: runtime.GOARCH, Go: runtime.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	congestion, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	m.Congestion = strings.TrimSpace(string(congestion))
	return m
}

// loadNow reads the load average over one minute: the first word of /proc/loadavg.
func loadNow() (load float64) {
	data, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		fmt.Sscan(string(data), &load)
	}
	return load
}
