package dogwatch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// clean hides a program that is installed on this machine.
func clean(t *testing.T) {
	t.Helper()
	t.Setenv("DOGWATCH", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("DOGWATCH_PACKAGE", "")
	t.Setenv("DOGWATCH_PACKAGE_SHA256", "")
}

const script = "#!/bin/sh\n"

func wheel(t *testing.T) []byte {
	t.Helper()
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	file, err := writer.Create("dogwatch-0.1.0.data/scripts/dogwatch")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte(script)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func npm(t *testing.T) []byte {
	t.Helper()
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	writer := tar.NewWriter(packed)
	for name, content := range map[string]string{"package/package.json": "{}", "package/bin/dogwatch": script} {
		if err := writer.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func save(t *testing.T, name string, content []byte) Package {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return Package{Location: path, SHA256: hex.EncodeToString(sum[:])}
}

func TestTheVariableComesBeforePathAndPathBeforeAPackage(t *testing.T) {
	clean(t)
	from := save(t, "dogwatch.whl", wheel(t))
	installed, err := Find(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, name := range []string{"dogwatch", "other"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder)
	onPath, err := Find(t.Context(), from)
	if err != nil || onPath != filepath.Join(folder, "dogwatch") || onPath == installed {
		t.Fatalf("%s, %v", onPath, err)
	}
	t.Setenv("DOGWATCH", filepath.Join(folder, "other"))
	named, err := Find(t.Context(), from)
	if err != nil || named != filepath.Join(folder, "other") {
		t.Fatalf("%s, %v", named, err)
	}
	t.Setenv("DOGWATCH", filepath.Join(folder, "missing"))
	if _, err := Find(t.Context(), from); err == nil || !strings.Contains(err.Error(), "DOGWATCH") {
		t.Fatalf("a wrong variable is not an error that names it: %v", err)
	}
}

func TestWheelsAndNpmPackagesAreInstalledOnce(t *testing.T) {
	for name, content := range map[string][]byte{"dogwatch.whl": wheel(t), "dogwatch.tgz": npm(t)} {
		clean(t)
		from := save(t, name, content)
		path, err := Find(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != script {
			t.Fatalf("%s: %q, %v", name, text, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
			t.Fatalf("%s: the program cannot be executed: %v", name, err)
		}
		if err := os.Remove(from.Location); err != nil {
			t.Fatal(err)
		}
		if again, err := Find(t.Context(), from); err != nil || again != path {
			t.Fatalf("%s: %s, %v", name, again, err)
		}
	}
}

func TestAPackageWithAnotherChecksumIsRefused(t *testing.T) {
	clean(t)
	from := save(t, "dogwatch.whl", wheel(t))
	from.SHA256 = strings.Repeat("0", 64)
	if _, err := Find(t.Context(), from); err == nil || !strings.Contains(err.Error(), "its checksum is") {
		t.Fatalf("the error is %v", err)
	}
	from.SHA256 = "../.."
	if _, err := Find(t.Context(), from); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
		t.Fatalf("the error is %v", err)
	}
}

func TestAPackageIsDownloadedAndSeveralMayInstallAtOnce(t *testing.T) {
	clean(t)
	content := wheel(t)
	from := save(t, "dogwatch.whl", content)
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/dogwatch.whl" {
			http.NotFound(answer, request)
			return
		}
		_, _ = answer.Write(content)
	}))
	defer server.Close()
	t.Setenv("DOGWATCH_PACKAGE", server.URL+"/missing.whl")
	t.Setenv("DOGWATCH_PACKAGE_SHA256", from.SHA256)
	if _, err := Find(t.Context(), Package{}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("the error is %v", err)
	}
	t.Setenv("DOGWATCH_PACKAGE", server.URL+"/dogwatch.whl")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := Find(t.Context(), Package{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestWithoutAProgramTheErrorSaysWhatToDo(t *testing.T) {
	clean(t)
	_, err := Find(t.Context(), Package{})
	if err == nil || !strings.Contains(err.Error(), "DOGWATCH_PACKAGE") {
		t.Fatalf("the error is %v", err)
	}
}
