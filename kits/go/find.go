package dogwatch

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packageSizeMax bounds a download: an endless answer must not fill the disk.
const packageSizeMax = 256 << 20

// programSizeMax bounds the program in a package for the same reason.
const programSizeMax = 1 << 30

// Package is a wheel or npm package of dogwatch.
type Package struct {
	// Location is the path of a file, or an http or https URL. It ends in .whl or .tgz.
	Location string
	// SHA256 is the checksum of the package in hexadecimal digits. A package with another one is not used.
	SHA256 string
}

// PackageFromEnvironment is the package that DOGWATCH_PACKAGE and DOGWATCH_PACKAGE_SHA256 describe.
func PackageFromEnvironment() Package {
	return Package{Location: os.Getenv("DOGWATCH_PACKAGE"), SHA256: os.Getenv("DOGWATCH_PACKAGE_SHA256")}
}

// Find returns the path of the program. It is, in this order, the value of DOGWATCH, the program on PATH, or the one in the package,
// which is installed in the user's cache the first time. An empty package is the one of the environment.
func Find(ctx context.Context, from Package) (string, error) {
	if path := os.Getenv("DOGWATCH"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("DOGWATCH: %w", err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("dogwatch"); err == nil {
		return path, nil
	}
	if from == (Package{}) {
		from = PackageFromEnvironment()
	}
	if from.Location == "" {
		return "", errors.New("dogwatch is not installed: set DOGWATCH to the path of the program, put it on PATH, or set " +
			"DOGWATCH_PACKAGE and DOGWATCH_PACKAGE_SHA256 to a wheel or npm package and its checksum")
	}
	path, err := install(ctx, from)
	if err != nil {
		return "", fmt.Errorf("dogwatch cannot be installed from %s: %w", from.Location, err)
	}
	return path, nil
}

// install returns the program of a package from the cache. A folder is named by the checksum, so a program in it is complete and right.
func install(ctx context.Context, from Package) (string, error) {
	sum := strings.ToLower(from.SHA256)
	if bytes, err := hex.DecodeString(sum); err != nil || len(bytes) != sha256.Size {
		return "", errors.New("its checksum must be the 64 hexadecimal digits of SHA-256")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "dogwatch", "packages", sum)
	program := filepath.Join(folder, "dogwatch")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	archive, err := download(ctx, from.Location, sum, folder)
	if err != nil {
		return "", err
	}
	defer os.Remove(archive)
	// Several processes may install at once: each renames a complete file of its own.
	file, err := os.CreateTemp(folder, "program-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	extractError := extract(archive, from.Location, file)
	if err := errors.Join(extractError, file.Chmod(0o755), file.Close()); err != nil {
		return "", err
	}
	return program, os.Rename(file.Name(), program)
}

// download copies the package to a temporary file in the folder and compares its checksum.
func download(ctx context.Context, location, sum, folder string) (_ string, err error) {
	source, err := open(ctx, location)
	if err != nil {
		return "", err
	}
	defer source.Close()
	file, err := os.CreateTemp(folder, "package-")
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(source, packageSizeMax+1))
	if err != nil {
		return "", err
	}
	if size > packageSizeMax {
		return "", fmt.Errorf("it is larger than %d bytes", packageSizeMax)
	}
	if found := hex.EncodeToString(hash.Sum(nil)); found != sum {
		return "", fmt.Errorf("its checksum is %s, not %s", found, sum)
	}
	return file.Name(), nil
}

func open(ctx context.Context, location string) (io.ReadCloser, error) {
	if !strings.HasPrefix(location, "https://") && !strings.HasPrefix(location, "http://") {
		return os.Open(location)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the server answered %s", response.Status)
	}
	return response.Body, nil
}

// extract writes the program of a package. The format follows from the location, since the file itself has a temporary name.
func extract(archive, location string, program io.Writer) error {
	path, _, _ := strings.Cut(location, "?")
	switch filepath.Ext(path) {
	case ".whl":
		return extractWheel(archive, program)
	case ".tgz":
		return extractNpm(archive, program)
	default:
		return errors.New("it is neither a wheel (.whl) nor an npm package (.tgz)")
	}
}

func extractWheel(archive string, program io.Writer) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer reader.Close()
	for _, file := range reader.File {
		if strings.HasSuffix(file.Name, ".data/scripts/dogwatch") {
			content, err := file.Open()
			if err != nil {
				return err
			}
			defer content.Close()
			return copyProgram(program, content)
		}
	}
	return errors.New("the wheel has no program dogwatch")
}

func extractNpm(archive string, program io.Writer) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for entries := tar.NewReader(unpacked); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("the npm package has no program bin/dogwatch")
		}
		if err != nil {
			return err
		}
		if entry.Name == "package/bin/dogwatch" {
			return copyProgram(program, entries)
		}
	}
}

func copyProgram(program io.Writer, content io.Reader) error {
	size, err := io.Copy(program, io.LimitReader(content, programSizeMax+1))
	if err == nil && size > programSizeMax {
		err = fmt.Errorf("the program is larger than %d bytes", programSizeMax)
	}
	return err
}
