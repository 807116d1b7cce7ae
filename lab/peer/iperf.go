package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/lab"
)

// IperfServer starts an iperf3 server on a host. It runs one test at a time.
func IperfServer(ctx context.Context, host *lab.Host, at netip.AddrPort) (*Process, error) {
	p, err := Start(ctx, host, "iperf3", "--server", "--forceflush", "--bind", at.Addr().String(), "--port", strconv.Itoa(int(at.Port())))
	if err != nil {
		return nil, err
	}
	return p.OrStop(p.AwaitLog(ctx, "Server listening"))
}

// IperfTest is one iperf3 test over TCP.
type IperfTest struct {
	To        netip.AddrPort
	Down      bool          // the server sends
	For, Omit time.Duration // sending time, and the time before it that is not counted
}

// IperfResult is what the receiver measured.
type IperfResult struct {
	BitsPerSecond float64
	Bytes         int64
	Retransmits   int
}

// iperfOutput is the part of the `iperf3 --json` output that we use.
type iperfOutput struct {
	Error string `json:"error"`
	End   struct {
		Sent struct {
			Retransmits int `json:"retransmits"`
		} `json:"sum_sent"`
		Received struct {
			Bytes         int64   `json:"bytes"`
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
}

// refusals are how a client of iperf3 ends as long as the server has not seen the end of the test before. The server closes such a connection
// without reading it, so that a reset may overtake its answer.
var refusals = []string{"the server is busy running a test", "unable to receive control message: Connection reset by peer"}

func busy(err error) bool {
	return err != nil && slices.ContainsFunc(refusals, func(said string) bool { return strings.Contains(err.Error(), said) })
}

// Iperf runs one test from a host and waits for it. While the server is busy, for at most a minute, it asks again.
func Iperf(ctx context.Context, host *lab.Host, t IperfTest) (IperfResult, error) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		return IperfResult{}, missing("iperf3", "apt-get install iperf3")
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 0, 64) }
	args := []string{"--client", t.To.Addr().String(), "--port", strconv.Itoa(int(t.To.Port())), "--json",
		"--time", seconds(t.For), "--connect-timeout", "20000"}
	if t.Omit > 0 {
		args = append(args, "--omit", seconds(t.Omit))
	}
	if t.Down {
		args = append(args, "--reverse")
	}
	for end := time.Now().Add(time.Minute); ; {
		result, err := iperf(ctx, host, t.For+t.Omit+40*time.Second, args)
		if !busy(err) || time.Now().After(end) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func iperf(ctx context.Context, host *lab.Host, limit time.Duration, args []string) (IperfResult, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := host.Command(ctx, "iperf3", args...).Output()
	return parseIperf(out, err)
}

func parseIperf(out []byte, failed error) (IperfResult, error) {
	var o iperfOutput
	if err := json.Unmarshal(out, &o); err != nil {
		return IperfResult{}, errors.Join(failed, fmt.Errorf("iperf3: %w", err))
	}
	if o.Error != "" || failed != nil {
		return IperfResult{}, fmt.Errorf("iperf3: %w", errors.Join(errors.New(o.Error), failed))
	}
	if o.End.Received.Bytes == 0 {
		return IperfResult{}, errors.New("iperf3: nothing was received")
	}
	return IperfResult{o.End.Received.BitsPerSecond, o.End.Received.Bytes, o.End.Sent.Retransmits}, nil
}
