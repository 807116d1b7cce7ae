package bench

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// processor is the time of processors that a process and its children took so far; none for process 0.
func processor(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	text, err := os.ReadFile(proc + "stat")
	if err != nil {
		return 0, err
	}
	sum, err := statTime(string(text))
	children, other := os.ReadFile(fmt.Sprintf("%stask/%d/children", proc, pid))
	err = errors.Join(err, other)
	for _, child := range strings.Fields(string(children)) {
		var id int
		if _, other := fmt.Sscan(child, &id); other != nil {
			return 0, other
		}
		one, other := processor(id)
		sum, err = sum+one, errors.Join(err, other)
	}
	return sum, err
}

// statTime reads the time of processors from /proc/PID/stat.
func statTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // from the third on: proc(5). The second may have spaces.
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, fmt.Errorf("%q is no line of /proc/PID/stat", stat)
	}
	var ticks [2]int64
	if _, err := fmt.Sscan(fields[user]+" "+fields[system], &ticks[0], &ticks[1]); err != nil {
		return 0, err
	}
	const tick = 10 * time.Millisecond // Linux reports in hundredths of a second on all machines
	return time.Duration(ticks[0]+ticks[1]) * tick, nil
}

// resident is the memory of a process in MB.
func resident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kb float64
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kb); n == 1 {
			break
		}
	}
	return kb / 1000, nil
}
