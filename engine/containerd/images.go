package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pinned is the label by which the kubelet's garbage collection spares an image: what came as an archive
// cannot be pulled again.
const pinned = "io.cri-containerd.pinned=pinned"

// Import imports image archives (in the docker or OCI layout), in their order. One that has not changed since
// it was imported is skipped. Errors of single archives are collected. It must not be called twice at a time.
func (r *Runtime) Import(ctx context.Context, archives ...string) error {
	var errs []error
	for _, archive := range archives {
		if err := r.importOne(ctx, archive); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Runtime) importOne(ctx context.Context, archive string) error {
	st, err := os.Stat(archive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	mark := fmt.Sprint(st.Size(), " ", st.ModTime().UnixNano())
	path := filepath.Join(r.opts.DataDir, "imported.json")
	done := map[string]string{} // size and time of change by the path of what was imported
	if b, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(b, &done) // a damaged list only means importing again
	}
	if done[archive] == mark {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, r.opts.program("ctr"), "--address", r.opts.Socket(), "--namespace", "k8s.io",
		"images", "import", "--label", pinned, archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import images of %s: %w: %s", archive, err, strings.TrimSpace(string(out)))
	}
	r.log.Info("imported images", "archive", archive, "took", time.Since(began).Round(time.Millisecond))
	done[archive] = mark
	b, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
