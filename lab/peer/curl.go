package peer

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"heddle/lab"
)

// Fetched is what curl measured of one transfer.
type Fetched struct {
	Bytes            int64   // of the body
	FirstByte, Total float64 // seconds since the start
}

// Curl fetches a URL on a host into a file, with curl and these arguments. It fails with [ErrMissing] without curl.
func Curl(ctx context.Context, host *lab.Host, url, file string, args ...string) (f Fetched, err error) {
	if _, err := exec.LookPath("curl"); err != nil {
		return f, missing("curl", "apt-get install curl")
	}
	args = append([]string{"-sS", "--fail", "-o", file, "-w", "%{size_download} %{time_starttransfer} %{time_total}"}, args...)
	cmd := host.Command(ctx, "curl", append(args, url)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("curl on %s: %w: %s", host.Name(), err, bytes.TrimSpace(stderr.Bytes()))
	}
	_, err = fmt.Sscan(string(out), &f.Bytes, &f.FirstByte, &f.Total)
	return f, err
}
