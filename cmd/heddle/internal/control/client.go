package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"heddle/config"
)

// Names lists the running heddles in alphabetical order.
func Names() ([]string, error) {
	dir := Dir()
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, dirError(dir, err)
	}
	var names []string
	for _, entry := range entries {
		name, isLock := strings.CutSuffix(entry.Name(), ".lock")
		if isLock && config.CheckSessionName(name) == nil && locked(lockFile(dir, name)) {
			names = append(names, name)
		}
	}
	return names, nil
}

// maxStatus bounds an answer: a status has a few hundred bytes for each session and path.
const maxStatus = 64 << 20

// Ask returns the status of the named heddle. It fails with a [NotRunningError] if none runs.
func Ask(ctx context.Context, name string) (status Status, err error) {
	answer, err := ask(ctx, name, http.MethodGet, "/status")
	if err != nil {
		return status, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxStatus)).Decode(&status); err != nil {
		return status, unanswered(name, err)
	}
	return status, nil
}

// Stop ends the named heddle and waits until it has released its name, or died. It fails with a [NotRunningError] if
// none runs, and with the context's error if ctx ends first.
func Stop(ctx context.Context, name string) error {
	answer, err := ask(ctx, name, http.MethodPost, "/stop")
	if err != nil {
		return err
	}
	answer.Body.Close()
	file := lockFile(Dir(), name)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for locked(file) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s was asked to stop and has not yet: %w", name, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

func ask(ctx context.Context, name, method, target string) (*http.Response, error) {
	if err := config.CheckSessionName(name); err != nil {
		return nil, err
	}
	dir := Dir()
	if !locked(lockFile(dir, name)) {
		return nil, &NotRunningError{Name: name}
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: 5 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socketFile(dir, name))
		}}
	request, err := http.NewRequestWithContext(ctx, method, "http://heddle"+target, nil)
	if err != nil {
		return nil, err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, unanswered(name, err)
	}
	if answer.StatusCode/100 != 2 {
		answer.Body.Close()
		return nil, unanswered(name, errors.New(answer.Status))
	}
	return answer, nil
}
