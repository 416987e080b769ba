module github.com/tonistiigi/go-rosetta

go 1.26.0
