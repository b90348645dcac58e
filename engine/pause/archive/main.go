// Archive packs one static program into an image archive (the docker-archive format, which containerd
// imports), without a registry, a daemon or a base image. scripts/build.sh calls it for the pause image.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
)

func main() {
	image := flag.String("image", "", "name of the image, with tag")
	binary := flag.String("binary", "", "static program, becomes the entry point")
	out := flag.String("out", "", "archive to write")
	flag.Parse()
	if err := pack(*image, *binary, *out); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func pack(image, binary, out string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	layer, err := archive(file{"pause", program, 0o755})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535", "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	b, err := archive(file{configName, config, 0o644}, file{"layer.tar", layer, 0o644}, file{"manifest.json", manifest, 0o644})
	if err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o644)
}

type file struct {
	name string
	data []byte
	mode int64
}

// archive makes a tar without times, so that equal input gives an equal image.
func archive(files ...file) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: f.mode, Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
