// Package k3sconfig reads the configuration of a K3s server as K3s reads it: a YAML file whose keys are the flags without their dashes, and
// the files of the folder beside it, FILE.d/*.yaml, in the order of their names (docs.k3s.io/installation/configuration). Of a key given twice
// the last holds; a key that ends in + adds to what was there before.
//
// cluster reads what the owner of a K3s set, to know its ranges before it answers; kith-k8s reads what kithd wrote when it stands in for K3s.
// The package must never write.
package k3sconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Where K3s has its things unless told otherwise.
const (
	File       = "/etc/rancher/k3s/config.yaml"
	Kubeconfig = "/etc/rancher/k3s/k3s.yaml"
	DataDir    = "/var/lib/rancher/k3s"
)

// maxFile is more than any configuration has.
const maxFile = 1 << 20

// Values are the keys set, each with its values in order; a key that is set to nothing has none, which is true for a flag without a value.
type Values map[string][]string

// Last is the value that holds for a key that takes one; "" if it is not set.
func (v Values) Last(key string) string {
	if list := v[key]; len(list) > 0 {
		return list[len(list)-1]
	}
	return ""
}

// Dropins is the folder of further files beside a configuration file.
func Dropins(file string) string { return file + ".d" }

// Read reads a configuration file and those beside it. A file that is not there has no keys, nor has a folder.
func Read(file string) (Values, error) {
	files := []string{file}
	entries, err := os.ReadDir(Dropins(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries { // sorted by name
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(Dropins(file), e.Name()))
		}
	}
	values := Values{}
	for _, path := range files {
		if err := values.add(path); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (v Values) add(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if st.Size() > maxFile {
		return fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var content map[string]any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return fmt.Errorf("%s: want a YAML map of flags to values: %w", path, err)
	}
	for key, value := range content {
		list, err := valuesOf(value)
		if err != nil {
			return fmt.Errorf("%s: key %s: %w", path, key, err)
		}
		name, more := strings.CutSuffix(key, "+")
		if more {
			list = slices.Concat(v[name], list)
		}
		v[name] = list
	}
	return nil
}

// valuesOf gives the values of a key: one, or those of a list.
func valuesOf(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	out := []string{}
	for _, one := range list {
		switch one := one.(type) {
		case nil:
		case string:
			out = append(out, one)
		case bool:
			out = append(out, strconv.FormatBool(one))
		case float64:
			out = append(out, strconv.FormatFloat(one, 'f', -1, 64))
		default:
			return nil, fmt.Errorf("want a value or a list of values, not %T", one)
		}
	}
	return out, nil
}
