package peer

import (
	"os"
	"path/filepath"
)

// Aioquic gives the Python that has the pinned aioquic, for programs other than the server here. It installs nothing:
// it fails with [ErrMissing] where no server on aioquic was ever started on this machine.
func Aioquic() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	python := filepath.Join(cache, "heddle", "peers", "aioquic-"+digest("", sources("aioquic")), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return "", missing("aioquic", "heddle lab bench quic installs it")
	}
	return python, nil
}
