// Package readers has programs of others say what they take the connections of captures for: nDPI, tshark and p0f. None of them was made to
// find Heddle, so what they say is what a filter without a rule against it knows.
package readers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"heddle/lab/peer"
	"heddle/path"
)

// Row is what one program says of the captures in a directory.
type Row struct {
	Captures string         `json:"captures"` // the name of the directory
	Reader   string         `json:"reader"`
	Says     map[string]int `json:"says"` // how often the program says something: of each connection, of frames that are malformed, of each host
}

// reader asks a program about a capture.
type reader struct {
	name string
	read func(ctx context.Context, capture string) (map[string]int, error)
}

var all = []reader{{"nDPI", NDPI}, {"tshark", tshark}, {"p0f", p0f}}

// programs are what the readers start, by the package of Debian that has them.
var programs = map[string]string{"ndpiReader": "libndpi-bin", "tshark": "tshark", "p0f": "p0f"}

// Read asks all programs about the captures (*.pcapng) in each directory. It fails with [peer.ErrMissing] without a program. Only connections
// that begin in a capture and carried something count: programs name others by their ports. It says to talk which directory it reads.
func Read(ctx context.Context, talk io.Writer, dirs []string) (rows []Row, err error) {
	if err := Supported(slices.Sorted(maps.Keys(programs))...); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "heddle-readers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	for _, dir := range dirs {
		captures, err := filepath.Glob(filepath.Join(dir, "*.pcapng"))
		if err != nil || len(captures) == 0 {
			return nil, &path.Error{What: dir, Why: "there is no capture in it", Hint: "heddle lab collect --over tor,https --captures DIR makes a directory with captures for each way", Err: err}
		}
		fmt.Fprintf(talk, "%s: %d captures\n", dir, len(captures))
		first := len(rows)
		for _, r := range all {
			rows = append(rows, Row{filepath.Base(dir), r.name, map[string]int{}})
		}
		for _, capture := range captures {
			if err := ask(ctx, capture, filepath.Join(work, "talking.pcap"), rows[first:]); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}

// Supported returns nil, or an error that wraps [peer.ErrMissing], for some of the programs "ndpiReader", "tshark" and "p0f".
func Supported(some ...string) error {
	for _, program := range some {
		if _, err := exec.LookPath(program); err != nil {
			return &path.Error{What: program, Why: "the program is not on this machine", Hint: "apt-get install " + programs[program], Err: peer.ErrMissing}
		}
	}
	return nil
}

// ask adds what each reader says of a capture to its row. It overwrites the file talking.
func ask(ctx context.Context, capture, talking string, rows []Row) error {
	if err := Carrying(ctx, capture, talking); err != nil {
		return &path.Error{What: capture, Err: err}
	}
	for i, r := range all {
		says, err := r.read(ctx, talking)
		if err != nil {
			return &path.Error{What: r.name + " on " + capture, Err: err}
		}
		for what, n := range says {
			rows[i].Says[what] += n
		}
	}
	return nil
}

// run returns what a program prints.
func run(ctx context.Context, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as exec returns it
		return "", fmt.Errorf("%s: %w: %.300s", program, err, strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}

// Carrying writes the TCP connections that begin in a capture and carried something, and all of UDP, as a pcap file, which p0f can read.
func Carrying(ctx context.Context, capture, out string) error {
	text, err := run(ctx, "tshark", "-r", capture, "-Y", "tcp.len > 0 or tcp.flags.syn == 1", "-T", "fields", "-e", "tcp.stream", "-e", "tcp.flags.syn")
	if err != nil {
		return err
	}
	begun, carries, filter := map[string]bool{}, map[string]bool{}, "udp"
	for line := range strings.Lines(text) {
		if stream, syn, _ := strings.Cut(strings.TrimSpace(line), "\t"); syn == "1" || syn == "True" {
			begun[stream] = true
		} else {
			carries[stream] = true
		}
	}
	maps.DeleteFunc(carries, func(stream string, _ bool) bool { return !begun[stream] })
	if len(carries) > 0 {
		filter += " or tcp.stream in {" + strings.Join(slices.Sorted(maps.Keys(carries)), ",") + "}"
	}
	_, err = run(ctx, "tshark", "-r", capture, "-Y", filter, "-F", "pcap", "-w", out)
	return err
}

// NDPI counts connections by what nDPI takes them for.
func NDPI(ctx context.Context, capture string) (map[string]int, error) {
	out, err := run(ctx, "ndpiReader", "-f", "ip", "-i", capture)
	if err != nil {
		return nil, err
	}
	return nDPISays(out)
}

var nDPILine = regexp.MustCompile(`(?m)^\t(\S+) +packets: \d+ +bytes: \d+ +flows: (\d+)`)

func nDPISays(out string) (map[string]int, error) {
	says := map[string]int{}
	for _, one := range nDPILine.FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(one[2])
		if err != nil {
			return nil, err
		}
		says[one[1]] += n
	}
	return says, nil
}

// Malformed is a filter of tshark for frames of which tshark says so. To tshark a segment that TCP sent twice is one.
const Malformed = `_ws.malformed && !(_ws.expert.message contains "overlaps old data")`

// tshark counts connections by the protocol that tshark sees in most of their packets with something in them, and malformed frames.
func tshark(ctx context.Context, capture string) (map[string]int, error) {
	out, err := run(ctx, "tshark", "-r", capture, "-Y", "tcp.len > 0 or udp", "-T", "fields", "-e", "tcp.stream", "-e", "udp.stream", "-e", "_ws.col.Protocol")
	if err != nil {
		return nil, err
	}
	says := tsharkSays(out)
	frames, err := run(ctx, "tshark", "-r", capture, "-Y", Malformed, "-T", "fields", "-e", "frame.number")
	if n := len(strings.Fields(frames)); n > 0 {
		says["malformed frames"] = n
	}
	return says, err
}

func tsharkSays(out string) map[string]int {
	seen := map[string]map[string]int{} // by connection and protocol
	for line := range strings.Lines(out) {
		at := strings.LastIndexByte(strings.TrimRight(line, "\n"), '\t')
		if at < 0 {
			continue
		}
		connection, protocol := line[:at], strings.TrimSpace(line[at:])
		if seen[connection] == nil {
			seen[connection] = map[string]int{}
		}
		if protocol != "TCP" && protocol != "UDP" { // packets in the midst of a message have no other name
			seen[connection][protocol]++
		}
	}
	says := map[string]int{}
	for _, protocols := range seen {
		best, most := "no protocol", 0
		for _, protocol := range slices.Sorted(maps.Keys(protocols)) {
			if n := protocols[protocol]; n > most {
				best, most = protocol, n
			}
		}
		says[best]++
	}
	return says
}

// p0f counts what p0f takes the ends of connections for: systems by their SYN, and programs by their HTTP.
func p0f(ctx context.Context, capture string) (map[string]int, error) {
	lines, err := P0FLines(ctx, capture)
	if err != nil {
		return nil, err
	}
	return p0fSays(lines), nil
}

// P0FLines returns what p0f logs of a capture: the fields of each line by name.
func P0FLines(ctx context.Context, capture string) ([]map[string]string, error) {
	file := capture + ".p0f"
	defer os.Remove(file)
	if _, err := run(ctx, "p0f", "-r", capture, "-o", file); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return p0fLines(string(text)), nil
}

func p0fLines(text string) (lines []map[string]string) {
	for line := range strings.Lines(text) {
		fields := map[string]string{}
		_, line, _ = strings.Cut(strings.TrimSpace(line), "] ")
		for field := range strings.SplitSeq(line, "|") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		lines = append(lines, fields)
	}
	return lines
}

func p0fSays(lines []map[string]string) map[string]int {
	says := map[string]int{}
	for _, fields := range lines {
		what := fields["os"] + fields["app"] // of which a line has one
		if what == "" {
			continue
		}
		if what == "???" {
			what = "unknown"
		}
		if strings.Contains(fields["params"], "dishonest") {
			what += ", dishonest"
		}
		says[fields["mod"]+": "+what]++
	}
	return says
}
