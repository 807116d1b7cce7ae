package cli

import "heddle/identity"

// IdentityFile gives the file that --identity names, or this user's own.
func IdentityFile(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	return identity.DefaultFile()
}

// OwnIdentity reads the identity that --identity names, or this user's own.
func OwnIdentity(given string) (identity.Identity, error) {
	file, err := IdentityFile(given)
	if err != nil {
		return identity.Identity{}, err
	}
	return identity.Load(file)
}
