package control

import "io/fs"

// NoFollow does nothing here.
const NoFollow = 0

// checkOwner relies on Windows, where the temporary directory belongs to the user.
func checkOwner(fs.FileInfo) error { return nil }
