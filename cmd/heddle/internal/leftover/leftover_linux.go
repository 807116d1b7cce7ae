package leftover

import (
	"heddle/overlay/nat"
	"heddle/stripe/mptcp"
)

var journals = []journal{
	{nat.JournalKind, nat.Left, nat.Clean},
	{mptcp.JournalKind, func(dir, name string) ([]string, error) {
		if name != mptcp.JournalName {
			return nil, nil
		}
		return mptcp.Left(dir)
	}, func(dir, name string) (undone, stays []string, err error) {
		if name != mptcp.JournalName {
			return nil, nil, nil
		}
		undone, err = mptcp.Clean(dir)
		return undone, nil, err
	}},
}
