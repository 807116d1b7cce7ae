package cli

import (
	"io"
	"os"

	"heddle/path"
)

// KeepToOwner takes the rights of others from a file that the output is redirected to. --secret refuses files with such rights.
func KeepToOwner(out io.Writer) error {
	f, ok := out.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		return &path.Error{What: "the output", Why: "others can read the file that it is redirected to", Hint: "redirect it to a file of your own", Err: err}
	}
	return nil
}
