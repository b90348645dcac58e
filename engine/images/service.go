// Package images stands between the kubelet and containerd where images are concerned. What pods of this cluster name,
// containerd pulls as ever. What guests name, pods of other clusters, a program of our own gets from their
// home or pulls, which stays on the internet and with the registries that the owner lists: containerd would ask any server of the laptop's network for it.
//
// It must never pull for a guest by another way, also when it does not know what the owner said.
package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/engine/listener"
)

const (
	most    = 3                // pulls for one consumer at a time
	longest = 30 * time.Minute // for one
	message = 16 << 20         // as the kubelet's own client
)

// Options say where things are.
type Options struct {
	Socket     string // where the kubelet asks
	Containerd string // containerd's socket
	Root       string // the folder of its data
	Program    string // kith-image
	Homes      string // the socket at which kithd asks homes of guests; nobody need listen there
	// Annotations of a namespace, as the API server has them now.
	Annotations func(ctx context.Context, namespace string) (map[string]string, error)
}

// Service is a CRI image service in front of containerd's.
type Service struct {
	cri.UnimplementedImageServiceServer
	opts     Options
	log      *slog.Logger
	listener net.Listener
	server   *grpc.Server
	up       cri.ImageServiceClient
	close    func() error

	mu    sync.Mutex
	slots map[string]chan struct{} // by consumer
}

// Open listens. containerd need not answer yet.
func Open(o Options, log *slog.Logger) (*Service, error) {
	conn, err := grpc.NewClient("unix://"+o.Containerd, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(message), grpc.MaxCallSendMsgSize(message)))
	if err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	socket, err := listener.Unix(o.Socket)
	if err != nil {
		return nil, fmt.Errorf("socket of the image service: %w", err)
	}
	s := &Service{opts: o, log: log, listener: socket, up: cri.NewImageServiceClient(conn), close: conn.Close, slots: map[string]chan struct{}{}}
	s.server = grpc.NewServer(grpc.MaxRecvMsgSize(message), grpc.MaxSendMsgSize(message))
	cri.RegisterImageServiceServer(s.server, s)
	return s, nil
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	defer s.close()
	stopped := context.AfterFunc(ctx, s.server.Stop)
	defer stopped()
	if err := s.server.Serve(s.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("image service: %w", err)
	}
	return nil
}

// ListImages implements cri.ImageServiceServer.
func (s *Service) ListImages(ctx context.Context, r *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return s.up.ListImages(ctx, r)
}

// ImageStatus implements cri.ImageServiceServer.
func (s *Service) ImageStatus(ctx context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	return s.up.ImageStatus(ctx, r)
}

// RemoveImage implements cri.ImageServiceServer.
func (s *Service) RemoveImage(ctx context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	return s.up.RemoveImage(ctx, r)
}

// ImageFsInfo implements cri.ImageServiceServer.
func (s *Service) ImageFsInfo(ctx context.Context, r *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return s.up.ImageFsInfo(ctx, r)
}

// PullImage implements cri.ImageServiceServer.
func (s *Service) PullImage(ctx context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	consumer := r.GetSandboxConfig().GetLabels()[v1alpha1.LabelConsumer]
	if consumer == "" {
		return s.up.PullImage(ctx, r)
	}
	namespace := r.GetSandboxConfig().GetMetadata().GetNamespace()
	ref, err := s.pull(ctx, consumer, namespace, r)
	if err != nil {
		s.log.Info("image for a guest not pulled", "image", r.GetImage().GetImage(), "namespace", namespace, "err", err)
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &cri.PullImageResponse{ImageRef: ref}, nil
}

// order is what kith-image reads, kith.dev/engine/runtime/containerd/image.
type order struct {
	Socket     string   `json:"socket"`
	Root       string   `json:"root"`
	Image      string   `json:"image"`
	Registries []string `json:"registries"`
	Home       string   `json:"home,omitempty"`
	Auth       auth     `json:"auth"`
}

type auth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	Auth          string `json:"auth,omitempty"`
	IdentityToken string `json:"identityToken,omitempty"`
}

// pull gives the image's name with its digest, and not its ID as containerd does: the kubelet keeps a record of who pulled
// each ID (KEP-2535). With a guest's pull in it, the owner's own pods would have to pull the image they had all along.
func (s *Service) pull(ctx context.Context, consumer, namespace string, r *cri.PullImageRequest) (string, error) {
	notes, err := s.opts.Annotations(ctx, namespace)
	if err != nil {
		return "", fmt.Errorf("whence guests in namespace %s may have images cannot be read: %w", namespace, err)
	}
	// Who the consumer is and what this says are kithd's to write: no consumer can.
	registries, said := notes[v1alpha1.AnnotationRegistries]
	if !said {
		return "", fmt.Errorf("namespace %s does not say whence its guests may have images; kithd writes that when it runs", namespace)
	}
	free, err := s.slot(ctx, consumer)
	if err != nil {
		return "", err
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	a := r.GetAuth()
	o := order{Socket: s.opts.Containerd, Root: s.opts.Root, Image: r.GetImage().GetImage(), Registries: []string{}, Auth: auth{a.GetUsername(), a.GetPassword(), a.GetAuth(), a.GetIdentityToken()}}
	for _, registry := range strings.FieldsFunc(registries, func(c rune) bool { return c == ',' }) {
		if registry == v1alpha1.RegistryHome {
			o.Home = s.home(consumer)
		} else {
			o.Registries = append(o.Registries, registry)
		}
	}
	name, err := s.run(ctx, o)
	if err != nil {
		return "", err
	}
	return name, s.heard(ctx, name)
}

// home is where kith-image asks the home of a guest; "" where no kithd listens, as on nodes that are not the gateway's.
func (s *Service) home(consumer string) string {
	if _, err := os.Stat(s.opts.Homes); err != nil {
		return ""
	}
	return s.opts.Homes + ":/" + consumer
}

// slot waits until one more pull for the consumer may begin.
func (s *Service) slot(ctx context.Context, consumer string) (free func(), err error) {
	s.mu.Lock()
	slots := s.slots[consumer]
	if slots == nil {
		slots = make(chan struct{}, most)
		s.slots[consumer] = slots
	}
	s.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%d other images of the same consumer are being pulled: %w", most, ctx.Err())
	}
}

// run has kith-image do it.
func (s *Service) run(ctx context.Context, o order) (string, error) {
	in, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, s.opts.Program, "pull")
	// Without the company's proxy: that one resolves names itself, and reaches what it likes.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8", "GOMEMLIMIT=128MiB", "GOGC=50"}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(errs.String()); text != "" && ctx.Err() == nil {
			return "", errors.New(text[:min(len(text), 2048)])
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("pull image %s: %w", o.Image, err)
	}
	return strings.TrimSpace(out.String()), nil
}

// heard waits until containerd's image service has heard of an image that containerd has.
func (s *Service) heard(ctx context.Context, name string) error {
	var why error
	if wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		r, err := s.up.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		why = err
		return r.GetImage().GetId() != "", nil
	}) != nil {
		return errors.Join(fmt.Errorf("image %s was pulled, and is not there", name), why)
	}
	return nil
}
